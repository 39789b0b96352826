package e2e

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "notifymirror"

// mayImport is what a package below may import of ours; what is not named here may import
// anything but programs. A trailing /... stands for a package and all below it.
var mayImport = []struct {
	importer string
	imports  []string
}{
	{"canal", nil},
	{"mirror/embedded", nil},
	{"mirror/access", nil},
	{"mirror/record", nil},
	{"mirror/transact", nil},
	{"mirror", []string{"canal", "mirror/access", "mirror/record", "mirror/transact", "notifyd/schema/..."}},
	{"stream/...", []string{"mirror/access", "mirror/record", "mirror/transact", "stream/..."}},
	{"notifyd/client", []string{"notifyd/api/..."}},
	{"notifyd/...", []string{"notifyd/..."}},
	{"deploy", nil},
}

// Data flows to the right and imports point to the left.
func TestImportsPointOneWay(t *testing.T) {
	schemaFiles := map[string]bool{}
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		for _, spec := range f.syntax.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			ours, ok := strings.CutPrefix(name, module+"/")
			if !ok {
				continue
			}
			if within(ours, "cmd/...") && !within(f.dir, "cmd/...") {
				t.Errorf("%s imports %s: nothing imports a program", f.path, ours)
			}
			if within(ours, "e2e/...") && !within(f.dir, "e2e/...") {
				t.Errorf("%s imports %s, which is for tests", f.path, ours)
			}
			for _, rule := range mayImport {
				if within(f.dir, rule.importer) {
					if !slices.ContainsFunc(rule.imports, func(allowed string) bool { return within(ours, allowed) }) {
						t.Errorf("%s imports %s; %s may import only %q", f.path, ours, rule.importer, rule.imports)
					}
					break
				}
			}
			if f.dir == "mirror" && within(ours, "notifyd/...") {
				schemaFiles[f.path] = true
			}
		}
	}
	if len(schemaFiles) != 1 {
		t.Errorf("the mirror knows the store's schema in %d files, not in one: %v", len(schemaFiles), schemaFiles)
	}
}

// Who imports the stream gets no MySQL code, and who imports the tailer no Kafka code.
func TestLibrariesPullInNothingTheyDoNotNeed(t *testing.T) {
	for _, c := range []struct {
		library string
		without []string
	}{
		{"stream", []string{"mysql", "pingcap", "kafka-go", "franz-go"}},
		{"stream/window", []string{"mysql", "pingcap", "sarama", "kafka"}},
		{"stream/kafkago", []string{"mysql", "pingcap", "sarama"}},
		{"canal", []string{"sarama", "kafka", "franz-go"}},
		{"notifyd/client", []string{"mysql", "pingcap", "sarama", "kafka", "franz-go"}},
	} {
		out, err := exec.Command("go", "list", "-deps", module+"/"+c.library).Output()
		if err != nil {
			t.Fatal(err)
		}
		for dep := range strings.Lines(string(out)) {
			for _, word := range c.without {
				if strings.Contains(dep, word) {
					t.Errorf("%s pulls in %s", c.library, strings.TrimSpace(dep))
				}
			}
		}
	}
}

func TestEveryPackageAndExportedNameIsDocumented(t *testing.T) {
	documented := map[string]bool{} // by directory
	for _, f := range sources(t) {
		if f.test || ast.IsGenerated(f.syntax) {
			documented[f.dir] = documented[f.dir] || ast.IsGenerated(f.syntax)
			continue
		}
		documented[f.dir] = documented[f.dir] || f.syntax.Doc != nil
		for _, decl := range f.syntax.Decls {
			for _, name := range undocumented(decl) {
				t.Errorf("%s: %s has no comment", f.at(name), name.Name)
			}
		}
	}
	for dir, ok := range documented {
		if !ok && !onlyTests(t, dir) {
			t.Errorf("package %s has no comment", dir)
		}
	}
}

// undocumented are the exported names that a declaration makes without a comment of their own
// or of their group.
func undocumented(decl ast.Decl) (names []*ast.Ident) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && (d.Recv == nil || receiver(d).IsExported()) {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					names = append(names, s.Name)
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						names = append(names, name)
					}
				}
			}
		}
	}
	return names
}

func receiver(d *ast.FuncDecl) *ast.Ident {
	kind := d.Recv.List[0].Type
	if star, ok := kind.(*ast.StarExpr); ok {
		kind = star.X
	}
	if index, ok := kind.(*ast.IndexExpr); ok {
		kind = index.X
	}
	return kind.(*ast.Ident)
}

// shared are the package-level variables that change, and why they may.
var shared = map[string]string{
	"notifyd/embedded/dbtest.server": "one server per test binary",
	"notifyd/embedded/dbtest.names":  "numbers the schemas on it",
}

// Nothing happens at import, and no package keeps a state that two of its users would share.
func TestPackagesHaveNoInitAndNoState(t *testing.T) {
	all := sources(t)
	changed := changedNames(all)
	for _, f := range all {
		if f.test || ast.IsGenerated(f.syntax) {
			continue
		}
		for _, decl := range f.syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					t.Errorf("%s: func init", f.at(d))
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					v, ok := spec.(*ast.ValueSpec)
					if !ok || d.Tok != token.VAR || fixed(d, v) {
						continue
					}
					for _, name := range v.Names {
						full := f.dir + "." + name.Name
						isTable := table(v) && !name.IsExported() && !changed[full]
						if name.Name != "_" && shared[full] == "" && !isTable {
							t.Errorf("%s: variable %s of the package can change", f.at(name), name.Name)
						}
					}
				}
			}
		}
	}
}

// fixed tells whether a variable is a constant but for the language: embedded files, and what
// errors.New, fmt.Errorf and regexp.MustCompile make.
func fixed(d *ast.GenDecl, v *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{d.Doc, v.Doc} {
		if doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") }) {
			return true
		}
	}
	return len(v.Values) > 0 && !slices.ContainsFunc(v.Values, func(e ast.Expr) bool {
		call, ok := e.(*ast.CallExpr)
		return !ok || !slices.Contains([]string{"errors.New", "fmt.Errorf", "regexp.MustCompile"}, selector(call.Fun))
	})
}

// table tells whether a variable is a literal list, map or struct.
func table(v *ast.ValueSpec) bool {
	return len(v.Values) > 0 && !slices.ContainsFunc(v.Values, func(e ast.Expr) bool {
		_, ok := e.(*ast.CompositeLit)
		return !ok
	})
}

// changedNames are the names, with their directory, that some code of the package assigns to,
// takes the address of, or deletes from, as a whole or in part.
func changedNames(all []source) map[string]bool {
	changed := map[string]bool{}
	for _, f := range all {
		change := func(e ast.Expr) {
			for {
				switch x := e.(type) {
				case *ast.IndexExpr:
					e = x.X
				case *ast.SelectorExpr:
					e = x.X
				case *ast.Ident:
					changed[f.dir+"."+x.Name] = true
					return
				default:
					return
				}
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.AssignStmt:
				for _, left := range x.Lhs {
					if x.Tok != token.DEFINE {
						change(left)
					}
				}
			case *ast.IncDecStmt:
				change(x.X)
			case *ast.UnaryExpr:
				if x.Op == token.AND {
					change(x.X)
				}
			case *ast.CallExpr:
				if name, ok := x.Fun.(*ast.Ident); ok && (name.Name == "delete" || name.Name == "clear") {
					change(x.Args[0])
				}
			}
			return true
		})
	}
	return changed
}

// A test waits for conditions and is never left out; a context comes from the caller.
func TestNobodySleepsSkipsOrMakesUpAContext(t *testing.T) {
	for _, f := range sources(t) {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := selector(call.Fun)
			switch {
			case name == "time.Sleep" && !f.imports("testing/synctest"):
				t.Errorf("%s: time.Sleep: wait for a condition with a deadline", f.at(n))
			case f.test && slices.Contains([]string{"t.Skip", "t.Skipf", "t.SkipNow", "b.Skip", "b.Skipf", "b.SkipNow"}, name):
				t.Errorf("%s: %s: a test is never left out", f.at(n), name)
			case !f.test && !f.program() && (name == "context.Background" || name == "context.TODO"):
				t.Errorf("%s: %s: take the caller's context", f.at(n), name)
			}
			return true
		})
	}
}

// selector is the text of a.b, or "".
func selector(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return x.Name + "." + s.Sel.Name
}

// source is a Go file of the module.
type source struct {
	path, dir string // from the module's root, with slashes
	test      bool
	syntax    *ast.File
	files     *token.FileSet
}

func (f source) at(n ast.Node) string {
	p := f.files.Position(n.Pos())
	return f.path + ":" + strconv.Itoa(p.Line)
}

// program tells whether the file belongs to a program or to what tests are made of.
func (f source) program() bool {
	return f.syntax.Name.Name == "main" || within(f.dir, "e2e/...") || f.dir == "notifyd/embedded/dbtest" || within(f.dir, "cmd/...")
}

func (f source) imports(name string) bool {
	return slices.ContainsFunc(f.syntax.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == strconv.Quote(name) })
}

// sources are the module's files, but for what is built.
func sources(t *testing.T) []source {
	t.Helper()
	const root = ".."
	var all []source
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() && rel != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || rel == "bin") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(base) != ".go" {
			return nil
		}
		rel = filepath.ToSlash(rel)
		f := source{path: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"), files: token.NewFileSet()}
		if f.syntax, err = parser.ParseFile(f.files, name, nil, parser.ParseComments|parser.SkipObjectResolution); err != nil {
			return err
		}
		all = append(all, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("only %d files were found", len(all))
	}
	return all
}

func onlyTests(t *testing.T, dir string) bool {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", "{{len .GoFiles}}", module+"/"+dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(out)) == "0"
}

// within tells whether a package is the one of a pattern, or below it where it ends in /...
func within(name, pattern string) bool {
	parent, below := strings.CutSuffix(pattern, "/...")
	return name == parent || below && strings.HasPrefix(name, parent+"/")
}
