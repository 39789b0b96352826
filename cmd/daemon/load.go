package daemon

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Load fills config, a pointer to a struct with yaml tags, from a file and from environment
// variables, given as os.Environ gives them. An empty path means no file. When config is a
// Validator its problems are added. The error is a *ConfigError with every problem found.
func Load(path string, environ []string, config any) error {
	env := make(map[string]string, len(environ))
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	d := decoder{file: path, env: env, variables: map[string]bool{}, root: reflect.TypeOf(config).Elem()}
	target := reflect.ValueOf(config).Elem()
	if path != "" && !d.fromFile(target) {
		return &ConfigError{d.problems} // what else is wrong would only follow from that
	}
	d.fromEnvironment(target)
	if v, ok := config.(Validator); ok {
		d.problems = append(d.problems, v.Validate()...)
	}
	if len(d.problems) > 0 {
		return &ConfigError{d.problems}
	}
	return nil
}

// decoder collects problems while it fills a configuration.
type decoder struct {
	file      string
	env       map[string]string
	variables map[string]bool // that set a key
	root      reflect.Type
	problems  []Problem
}

// fromFile sets what the file says. It returns false when there is no file or no YAML in it.
func (d *decoder) fromFile(target reflect.Value) bool {
	content, err := os.ReadFile(d.file)
	if err != nil {
		// The error of os names the file.
		d.problems = append(d.problems, Problem{"--config", errors.Unwrap(err).Error() + ": " + d.file})
		return false
	}
	tree, err := parser.ParseBytes(content, 0)
	if syntax, ok := errors.AsType[yaml.Error](err); ok {
		position := syntax.GetToken().Position
		d.add(position.Line, position.Column, syntax.GetMessage())
		return false
	}
	if err != nil {
		d.problems = append(d.problems, Problem{d.file, err.Error()})
		return false
	}
	for i, document := range tree.Docs {
		if i > 0 {
			d.at(document, "more than one YAML document: only one is read")
			return false
		}
		if document.Body != nil {
			d.value(document.Body, target, "")
		}
	}
	return true
}

// at adds a problem at a node's place.
func (d *decoder) at(node ast.Node, text string) {
	position := node.GetToken().Position
	d.add(position.Line, position.Column, text)
}

func (d *decoder) add(line, column int, text string) {
	d.problems = append(d.problems, Problem{fmt.Sprintf("%s:%d:%d", d.file, line, column), text})
}
