package filter

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// lookup is the function that takes the place of an access to a map of strings. Users cannot
// write its name.
const lookup = "@lookup"

func stringMap() *cel.Type { return cel.MapType(cel.StringType, cel.StringType) }

func lookupFunction() cel.EnvOption {
	// A guard would look at every header at each call; the checker has seen the types.
	return cel.Function(lookup, decls.DisableTypeGuards(true), cel.Overload("lookup_string", []*cel.Type{stringMap(), cel.StringType}, cel.StringType,
		cel.BinaryBinding(func(m, key ref.Val) ref.Val {
			mapper, ok := m.(traits.Mapper)
			if !ok {
				return types.MaybeNoSuchOverloadErr(m)
			}
			if v, found := mapper.Find(key); found {
				return v
			}
			return types.String("")
		})))
}

// missingIsEmpty replaces m["x"] and m.x, of every map of strings, by a lookup.
func missingIsEmpty(env *cel.Env, tree *cel.Ast) (*cel.Ast, error) {
	optimizer, err := cel.NewStaticOptimizer(rewrite{})
	if err != nil {
		return nil, err
	}
	tree, issues := optimizer.Optimize(env, tree)
	return tree, issues.Err()
}

type rewrite struct{}

// Optimize implements cel.ASTOptimizer.
func (rewrite) Optimize(ctx *cel.OptimizerContext, tree *ast.AST) *ast.AST {
	accesses := ast.MatchDescendants(ast.NavigateAST(tree), func(e ast.NavigableExpr) bool {
		m, _ := access(ctx, e)
		return m != nil && tree.GetType(m.ID()).IsExactType(stringMap())
	})
	for _, e := range accesses {
		m, key := access(ctx, e)
		ctx.UpdateExpr(e, ctx.NewCall(lookup, m, key))
	}
	return tree
}

// access takes m["x"] and m.x apart, but not has(m.x). m is nil when e is something else.
func access(ctx *cel.OptimizerContext, e ast.Expr) (m, key ast.Expr) {
	switch e.Kind() {
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			return s.Operand(), ctx.NewLiteral(types.String(s.FieldName()))
		}
	case ast.CallKind:
		if c := e.AsCall(); c.FunctionName() == operators.Index && len(c.Args()) == 2 {
			return c.Args()[0], c.Args()[1]
		}
	}
	return nil, nil
}

// sizes tells the estimator how large a message is. 64 headers of 256 bytes are all that
// a message may have; for one with a longer header the cost is counted while the filter runs.
type sizes struct{}

const (
	headerBytes = 256 // of a name or a value
	headerCount = 64
	nameBytes   = 255 // of a topic or a key
)

func atMost(n uint64) *cost.SizeEstimate { return &cost.SizeEstimate{Max: n} }

// EstimateSize implements cost.Estimator.
func (sizes) EstimateSize(node cost.AstNode) *cost.SizeEstimate {
	path := node.Path()
	switch {
	case len(path) == 1 && path[0] == "headers":
		return atMost(headerCount)
	case len(path) == 1:
		return atMost(nameBytes)
	case len(path) > 1:
		return atMost(headerBytes)
	}
	return nil
}

// EstimateCallCost implements cost.Estimator.
func (sizes) EstimateCallCost(function, _ string, _ *cost.AstNode, _ []cost.AstNode) *cost.CallEstimate {
	if function == lookup {
		return &cost.CallEstimate{CostEstimate: cost.FixedCostEstimate(1), ResultSize: atMost(headerBytes)}
	}
	return nil
}
