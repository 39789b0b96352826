package filter

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

const (
	// MaxBytes is the longest expression.
	MaxBytes = 4096
	// MaxCost is the most that an expression may cost by estimate, in CEL's units, for a
	// message whose headers are of average size: 64 of 256 bytes fill what a message may have.
	// Looking a header up and comparing it costs some 30.
	MaxCost = 20_000
	// RunCost is the most that it may cost for one message.
	RunCost = 100_000
)

// maxNesting bounds loops in loops, such as headers.all(a, headers.all(b, ...)).
const maxNesting = 2

// A Filter is a compiled expression. It is safe for concurrent use.
type Filter struct {
	plain   question // nil: it is not
	program cel.Program
	counted cel.Program // the same, which counts its cost
}

// An Input is a message as filters see it. It is not safe for concurrent use.
type Input struct {
	topic, key string
	headers    map[string]string
	values     ref.Val // headers as CEL has them; nil: no filter has asked for them
	average    bool    // no size is above those of the estimate; known with values
}

// NewInput prepares a message for any number of filters. The map is not copied.
func NewInput(topic, key string, headers map[string]string) *Input {
	return &Input{topic: topic, key: key, headers: headers}
}

// prepare makes of the headers what CEL wants.
func (in *Input) prepare() {
	if in.values != nil {
		return
	}
	in.values = types.NewStringStringMap(types.DefaultTypeAdapter, in.headers)
	in.average = len(in.headers) <= headerCount && len(in.topic) <= nameBytes && len(in.key) <= nameBytes
	for name, value := range in.headers {
		in.average = in.average && len(name) <= headerBytes && len(value) <= headerBytes
	}
}

// ResolveName implements CEL's access to variables.
func (in *Input) ResolveName(name string) (any, bool) {
	switch name {
	case "headers":
		return in.values, true
	case "topic":
		return types.String(in.topic), true
	case "key":
		return types.String(in.key), true
	}
	return nil, false
}

// Parent implements CEL's access to variables.
func (in *Input) Parent() interpreter.Activation { return nil }

// environment is the language of filters.
func environment() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("topic", cel.StringType),
		cel.Variable("key", cel.StringType),
		lookupFunction(),
		cel.ParserExpressionSizeLimit(MaxBytes),
		cel.ASTValidators(
			cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(),
			cel.ValidateHomogeneousAggregateLiterals(), cel.ValidateComprehensionNestingLimit(maxNesting)))
}

// Compile reads an expression. Its error is an *Error, which says in one line where the expression
// is wrong and why. It takes about a millisecond.
func Compile(expression string) (*Filter, error) {
	if n := len(expression); n > MaxBytes {
		return nil, &Error{Reason: fmt.Sprintf("%d bytes are too many, at most %d", n, MaxBytes)}
	}
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("filter language: %w", err)
	}
	tree, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, located(issues)
	}
	if tree.OutputType() != cel.BoolType {
		return nil, &Error{Reason: fmt.Sprintf("it is of type %s, want bool: compare it with something", tree.OutputType())}
	}
	if tree, err = missingIsEmpty(env, tree); err != nil {
		return nil, &Error{Reason: oneLine(err.Error())}
	}
	estimate, err := env.EstimateCost(tree, sizes{})
	if err != nil {
		return nil, &Error{Reason: oneLine(err.Error())}
	}
	if estimate.Max > MaxCost {
		return nil, &Error{Reason: fmt.Sprintf("it may cost %d units for one message, at most %d are allowed: drop loops and regular expressions", estimate.Max, MaxCost)}
	}
	f := &Filter{plain: plain(tree.NativeRep().Expr())}
	if f.program, err = env.Program(tree, cel.EvalOptions(cel.OptOptimize)); err == nil {
		f.counted, err = env.Program(tree, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(RunCost))
	}
	if err != nil {
		return nil, &Error{Reason: oneLine(err.Error())}
	}
	return f, nil
}

// Match reports whether the message is wanted. Its error says why there is no answer.
func (f *Filter) Match(in *Input) (bool, error) {
	if f.plain != nil {
		return f.plain(in), nil
	}
	return f.interpret(in)
}

// interpret asks CEL.
func (f *Filter) interpret(in *Input) (bool, error) {
	in.prepare()
	program := f.counted
	if in.average {
		program = f.program
	}
	out, _, err := program.Eval(in)
	if err != nil {
		return false, err
	}
	wanted, ok := out.Value().(bool)
	if !ok {
		return false, errors.New("the filter gave no bool")
	}
	return wanted, nil
}

// An Error says why an expression is refused.
type Error struct {
	// Line counts from 1, Column in characters from 1; 0: the expression as a whole.
	Line, Column int
	Reason       string
}

// Error is one line.
func (e *Error) Error() string {
	switch {
	case e.Line == 0:
		return e.Reason
	case e.Line == 1:
		return fmt.Sprintf("column %d: %s", e.Column, e.Reason)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// located is the first of the problems found.
func located(issues *cel.Issues) *Error {
	first := issues.Errors()[0]
	return &Error{Line: max(1, first.Location.Line()), Column: max(0, first.Location.Column()) + 1, Reason: oneLine(first.Message)}
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.TrimSuffix(s, " (in container '')")
}
