package board

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/interpreter"

	"notifymirror/mirror/record"
)

// filterCost is the most that a filter may cost for one message, in CEL's units.
const filterCost = 100_000

// A Filter says which messages a board counts: a CEL expression over
//
//	headers   map(string, string)
//	key       string, "" when there is none
//	topic     string
//	json      the decoded body; null when it is no JSON
//
// A message for which it fails, as by a header that is missing, is not counted; has(headers.x)
// asks first. The zero Filter lets everything through.
type Filter struct {
	// Text is the expression.
	Text    string
	program cel.Program
}

// ParseFilter compiles an expression. The error says in one line where it is wrong.
func ParseFilter(text string) (Filter, error) {
	if strings.TrimSpace(text) == "" {
		return Filter{}, nil
	}
	env, err := cel.NewEnv(
		cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("topic", cel.StringType),
		cel.Variable("key", cel.StringType),
		cel.Variable("json", cel.DynType),
	)
	if err != nil {
		return Filter{}, fmt.Errorf("filter language: %w", err)
	}
	tree, issues := env.Compile(text)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		reason := strings.TrimSuffix(strings.Join(strings.Fields(first.Message), " "), " (in container '')")
		return Filter{}, fmt.Errorf("line %d, column %d: %s", max(1, first.Location.Line()), max(0, first.Location.Column())+1, reason)
	}
	if t := tree.OutputType(); t != cel.BoolType && t != cel.DynType {
		return Filter{}, fmt.Errorf("it is of type %s, want bool: compare it with something", t)
	}
	program, err := env.Program(tree, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(filterCost))
	if err != nil {
		return Filter{}, err
	}
	return Filter{text, program}, nil
}

// UnmarshalText implements encoding.TextUnmarshaler for configurations.
func (f *Filter) UnmarshalText(text []byte) (err error) {
	*f, err = ParseFilter(string(text))
	return err
}

var errNoBool = errors.New("the filter gave no bool")

// match tells whether a message is counted; the error says why there is no answer.
func (f Filter) match(m *message) (bool, error) {
	if f.program == nil {
		return true, nil
	}
	out, _, err := f.program.Eval(activation{m})
	if err != nil {
		return false, err
	}
	wanted, ok := out.Value().(bool)
	if !ok {
		return false, errNoBool
	}
	return wanted, nil
}

// activation gives an expression what it names, when it asks.
type activation struct{ *message }

// ResolveName implements CEL's access to variables.
func (a activation) ResolveName(name string) (any, bool) {
	switch name {
	case "headers":
		if headers := record.ToMap(a.record.Headers); headers != nil {
			return headers, true
		}
		return map[string]string{}, true
	case "topic":
		return a.record.Topic, true
	case "key":
		return a.key, true
	case "json":
		return numbers(a.json()), true
	}
	return nil, false
}

// Parent implements CEL's access to variables.
func (a activation) Parent() interpreter.Activation { return nil }

// numbers is decoded JSON with numbers that CEL can compare: whole ones exact.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			out[name] = numbers(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = numbers(value)
		}
		return out
	}
	return v
}
