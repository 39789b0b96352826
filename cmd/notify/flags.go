package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What flags and settings take, in the words of every error about them.
var (
	errSpan  = errors.New("want a duration of 0 or more, such as 500ms, 5s, 15m, 2h or 7d")
	errWhole = errors.New("want a whole number of 0 or more")
	errRate  = errors.New("want a number of 0 or more")
)

// wanted says the same for pflag's own types, by their name.
func wanted(kind string) error {
	switch kind {
	case "uint32":
		return errWhole
	case "int", "int32":
		return errors.New("want a whole number")
	case "float64":
		return errors.New("want a number")
	case "bool":
		return errors.New("want true or false")
	}
	return nil
}

// parseSpan reads a duration of 0 or more: time.ParseDuration's, or days, as in 7d and 1d12h.
func parseSpan(text string) (time.Duration, error) {
	var days uint64
	rest := text
	if head, tail, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(head, 10, 64)
		if err != nil || n > 100_000 {
			return 0, errSpan
		}
		if days, rest = n, tail; rest == "" {
			rest = "0"
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 {
		return 0, errSpan
	}
	return time.Duration(days)*24*time.Hour + d, nil
}

// span, whole and rate are flags of no negative value.
type (
	span  time.Duration
	whole int
	rate  float64
)

func spanVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*span)(p), name, usage)
}

func wholeVar(f *pflag.FlagSet, p *int, name string, value int, usage string) {
	*p = value
	f.Var((*whole)(p), name, usage)
}

func rateVar(f *pflag.FlagSet, p *float64, name string, value float64, usage string) {
	*p = value
	f.Var((*rate)(p), name, usage)
}

func (s *span) Set(text string) error {
	d, err := parseSpan(text)
	*s = span(d)
	return err
}

func (w *whole) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return errWhole
	}
	*w = whole(n)
	return nil
}

func (r *rate) Set(text string) error {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) || math.IsInf(n, 0) {
		return errRate
	}
	*r = rate(n)
	return nil
}

func (s *span) String() string { // 0 is what pflag takes for no default
	if *s == 0 {
		return "0"
	}
	return time.Duration(*s).String()
}
func (w *whole) String() string { return strconv.Itoa(int(*w)) }
func (r *rate) String() string  { return strconv.FormatFloat(float64(*r), 'g', -1, 64) }

// Type implements pflag.Value; help shows it.
func (*span) Type() string { return "duration" }

// Type implements pflag.Value; help shows it.
func (*whole) Type() string { return "int" }

// Type implements pflag.Value; help shows it.
func (*rate) Type() string { return "float" }

// plain puts the errors of cobra and its flags into words that need no knowledge of Go.
func plain(root *cobra.Command) {
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
		if !ok {
			return err
		}
		flag := invalid.GetFlag()
		why := wanted(flag.Value.Type())
		if why == nil || errors.Is(err, errWhole) {
			why = errors.Unwrap(invalid)
		}
		return fmt.Errorf("--%s %s: %w", flag.Name, invalid.GetValue(), why)
	})
	plainArgs(root)
}

// plainArgs does so for the number of arguments, of a command and those below it.
func plainArgs(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		plainArgs(child)
	}
	if fit := cmd.Args; fit != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := fit(cmd, args)
			for _, begin := range []string{"accepts ", "requires ", "unknown command "} { // cobra's own
				if err != nil && strings.HasPrefix(err.Error(), begin) {
					return fmt.Errorf("arguments %q: want %s", args, cmd.UseLine())
				}
			}
			return err
		}
	}
}
