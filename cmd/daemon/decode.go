package daemon

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// value fills v from a node. A null leaves what is there.
func (d *decoder) value(node ast.Node, v reflect.Value, path string) {
	switch node.(type) {
	case *ast.NullNode, *ast.CommentGroupNode:
		return
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.at(node, fmt.Sprintf("%s: anchors, aliases and tags are not read: write the value itself", path))
		return
	}
	switch {
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		d.value(node, v.Elem(), path)
	case isLeaf(v.Type()):
		d.leaf(node, v, path)
	case v.Kind() == reflect.Struct:
		d.object(node, v, path)
	case v.Kind() == reflect.Map:
		d.byName(node, v, path)
	case v.Kind() == reflect.Slice:
		d.list(node, v, path)
	default:
		panic(fmt.Sprintf("daemon: configuration type %s at %s", v.Type(), path))
	}
}

func (d *decoder) object(node ast.Node, v reflect.Value, path string) {
	entries, ok := d.entries(node, path)
	if !ok {
		return
	}
	known := fields(v.Type())
	for entries.Next() {
		key := entries.Key().GetToken().Value
		if f := find(known, key); f != nil {
			d.value(entries.Value(), v.FieldByIndex(f.index), join(path, key))
			continue
		}
		d.at(entries.Key(), d.unknown(key, path, known))
	}
}

func (d *decoder) byName(node ast.Node, v reflect.Value, path string) {
	entries, ok := d.entries(node, path)
	if !ok {
		return
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for entries.Next() {
		name := entries.Key().GetToken().Value
		element := reflect.New(v.Type().Elem()).Elem()
		d.value(entries.Value(), element, join(path, name))
		v.SetMapIndex(reflect.ValueOf(name), element)
	}
}

func (d *decoder) list(node ast.Node, v reflect.Value, path string) {
	sequence, ok := node.(*ast.SequenceNode)
	if !ok {
		d.at(node, path+": must be a list: one item per line, each after a dash, or [a, b]")
		return
	}
	items := reflect.MakeSlice(v.Type(), len(sequence.Values), len(sequence.Values))
	for i, item := range sequence.Values {
		d.value(item, items.Index(i), fmt.Sprintf("%s.%d", path, i))
	}
	v.Set(items)
}

func (d *decoder) leaf(node ast.Node, v reflect.Value, path string) {
	raw, ok := scalar(node)
	if !ok {
		d.at(node, path+": must be a single value; text with a colon inside { } needs quotes")
		return
	}
	text, expanded, err := expand(raw, d.env)
	if err == nil {
		err = setLeaf(v, text)
	}
	switch {
	case err == nil:
	case expanded:
		d.at(node, fmt.Sprintf("%s: %s", path, err))
	default:
		d.at(node, fmt.Sprintf("%s: %q: %s", path, raw, err))
	}
}

// entries returns the entries of a mapping, or adds a problem.
func (d *decoder) entries(node ast.Node, path string) (*ast.MapNodeIter, bool) {
	mapping, ok := node.(ast.MapNode)
	if !ok {
		if path == "" {
			path = "the file"
		}
		d.at(node, path+": must hold keys, each on a line of its own: key: value")
		return nil, false
	}
	return mapping.MapRange(), true
}

// scalar returns the text of a scalar as it stands in the file, without quotes.
func scalar(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimRight(n.Value.Value, "\n"), true
	case ast.ScalarNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// unknown says which key was meant: the same key at another place, else the nearest here.
func (d *decoder) unknown(key, path string, known []field) string {
	text := fmt.Sprintf("unknown key %q", join(path, key))
	for _, full := range keys(d.root, "") {
		if full == key || strings.HasSuffix(full, "."+key) {
			return fmt.Sprintf("%s: its place is %s", text, strings.ReplaceAll(full, "*", "NAME"))
		}
	}
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.key
	}
	best, _ := nearest(key, names)
	return fmt.Sprintf("%s: the nearest known key is %q", text, join(path, best))
}

func find(known []field, key string) *field {
	for i := range known {
		if known[i].key == key {
			return &known[i]
		}
	}
	return nil
}
