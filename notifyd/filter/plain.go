package filter

import (
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// Most filters compare headers, key and topic with one another and with constants, and nothing else. Such an
// expression has an answer for every message, and is asked without CEL's interpreter, which takes ten
// times as long.
//
//	plain  = plain "&&" plain | plain "||" plain | "!" plain | true | false
//	       | string ("==" | "!=") string | string "." ("startsWith" | "endsWith" | "contains") "(" string ")"
//	       | string "in" "[" string, ... "]" | string "in" "headers" | "has" "(" "headers" "." name ")"
//	string = constant | "key" | "topic" | header
//	header = "headers" "." name | "headers" "[" string "]"

type (
	// A question is a plain expression.
	question func(*Input) bool
	// A text is a string of one.
	text func(*Input) string
)

// plain reads an expression, as missingIsEmpty has left it, or returns nil when it is not plain.
func plain(e ast.Expr) question {
	switch e.Kind() {
	case ast.LiteralKind:
		if b, ok := e.AsLiteral().(types.Bool); ok {
			return func(*Input) bool { return bool(b) }
		}
	case ast.SelectKind:
		if s := e.AsSelect(); s.IsTestOnly() && isHeaders(s.Operand()) {
			return hasHeader(func(*Input) string { return s.FieldName() })
		}
	case ast.CallKind:
		return plainCall(e.AsCall())
	}
	return nil
}

func plainCall(c ast.CallExpr) question {
	args := c.Args()
	if c.IsMemberFunction() {
		args = append([]ast.Expr{c.Target()}, args...)
	}
	switch c.FunctionName() {
	case operators.LogicalNot:
		if a := plain(args[0]); a != nil {
			return func(in *Input) bool { return !a(in) }
		}
	case operators.LogicalAnd:
		return both(args, func(a, b question) question { return func(in *Input) bool { return a(in) && b(in) } })
	case operators.LogicalOr:
		return both(args, func(a, b question) question { return func(in *Input) bool { return a(in) || b(in) } })
	case operators.Equals:
		return compared(args, func(a, b string) bool { return a == b })
	case operators.NotEquals:
		return compared(args, func(a, b string) bool { return a != b })
	case overloads.StartsWith:
		return compared(args, strings.HasPrefix)
	case overloads.EndsWith:
		return compared(args, strings.HasSuffix)
	case overloads.Contains:
		return compared(args, strings.Contains)
	case operators.In:
		return among(args)
	}
	return nil
}

// both joins two plain expressions.
func both(args []ast.Expr, join func(a, b question) question) question {
	if len(args) != 2 {
		return nil
	}
	a, b := plain(args[0]), plain(args[1])
	if a == nil || b == nil {
		return nil
	}
	return join(a, b)
}

// compared compares two strings.
func compared(args []ast.Expr, how func(a, b string) bool) question {
	if len(args) != 2 {
		return nil
	}
	a, b := plainText(args[0]), plainText(args[1])
	if a == nil || b == nil {
		return nil
	}
	return func(in *Input) bool { return how(a(in), b(in)) }
}

// among looks a string up in a list, or among the names of headers.
func among(args []ast.Expr) question {
	a := plainText(args[0])
	switch {
	case a == nil:
		return nil
	case isHeaders(args[1]):
		return hasHeader(a)
	case args[1].Kind() != ast.ListKind || len(args[1].AsList().OptionalIndices()) > 0:
		return nil
	}
	var list []text
	for _, e := range args[1].AsList().Elements() {
		list = append(list, plainText(e))
		if list[len(list)-1] == nil {
			return nil
		}
	}
	return func(in *Input) bool {
		s := a(in)
		return slices.ContainsFunc(list, func(t text) bool { return t(in) == s })
	}
}

func hasHeader(name text) question {
	return func(in *Input) bool { _, ok := in.headers[name(in)]; return ok }
}

func isHeaders(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == "headers" }

// plainText reads a string, or returns nil when it is not plain.
func plainText(e ast.Expr) text {
	switch e.Kind() {
	case ast.LiteralKind:
		if s, ok := e.AsLiteral().(types.String); ok {
			return func(*Input) string { return string(s) }
		}
	case ast.IdentKind:
		switch e.AsIdent() {
		case "key":
			return func(in *Input) string { return in.key }
		case "topic":
			return func(in *Input) string { return in.topic }
		}
	case ast.CallKind:
		if c := e.AsCall(); c.FunctionName() == lookup && isHeaders(c.Args()[0]) {
			if name := plainText(c.Args()[1]); name != nil {
				return func(in *Input) string { return in.headers[name(in)] }
			}
		}
	}
	return nil
}
