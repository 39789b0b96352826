package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestCommandsAnswerWithTheirExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
		says string // on stderr
	}{
		"run":              {nil, ExitUnreachable, "x: no store"},
		"check-config":     {[]string{"check-config", "--config", "f"}, ExitUsage, "x: configuration: f: bad"},
		"unknown flag":     {[]string{"--nope"}, ExitUsage, "--nope"},
		"unknown command":  {[]string{"chek-config"}, ExitUsage, "chek-config"},
		"unknown argument": {[]string{"check-config", "more"}, ExitUsage, "more"},
		"bad level":        {[]string{"--log-level", "loud"}, ExitUsage, `"loud"`},
		"sub":              {[]string{"sub", "--config", "path", "--log-level", "warn"}, ExitFailed, "x: path warn"},
		"version":          {[]string{"--version"}, ExitOK, ""},
		"help":             {[]string{"--help"}, ExitOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			root := NewCommand("x", "test",
				func(f Flags) error { return &ConfigError{[]Problem{{f.Config, "bad"}}} },
				func(context.Context, Flags) error { return WithExitCode(ExitUnreachable, errors.New("no store")) })
			Subcommand(root, "sub", "test", func(_ *cobra.Command, f Flags) error { return errors.New(f.Config + " " + f.LogLevel) })
			root.SetOut(&stdout)
			code := Main(root, c.args, &stderr)
			if code != c.code || !strings.Contains(stderr.String(), c.says) || strings.Contains(stderr.String(), "Usage:") {
				t.Errorf("code %d, want %d; stderr %q", code, c.code, stderr.String())
			}
			if c.says == "" && (stderr.Len() > 0 || stdout.Len() == 0) {
				t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
			}
		})
	}
}

func TestExitCodeIsFoundThroughWrapping(t *testing.T) {
	inner := WithExitCode(ExitNotFound, errors.New("x"))
	for _, c := range []struct {
		err  error
		code int
	}{{nil, ExitOK}, {errors.New("x"), ExitFailed}, {inner, ExitNotFound}, {errors.Join(errors.New("y"), inner), ExitNotFound}, {WithExitCode(ExitDenied, nil), ExitOK}} {
		if got := ExitCode(c.err); got != c.code {
			t.Errorf("%v: %d, want %d", c.err, got, c.code)
		}
	}
}

func TestLogsThatAreNotOnATerminalAreJSON(t *testing.T) {
	var out bytes.Buffer
	logger := NewLogger(&out, slog.LevelWarn)
	logger.Info("quiet")
	logger.Warn("loud", "store", "a")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["msg"] != "loud" || line["store"] != "a" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
