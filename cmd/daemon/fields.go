package daemon

import (
	"encoding"
	"reflect"
	"slices"
	"strings"
)

// field is a key of a struct.
type field struct {
	key   string
	index []int
}

// fields returns the keys of a struct type in order, those of inlined structs among them.
func fields(t reflect.Type) []field {
	var list []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case !f.IsExported() || name == "-":
		case options == "inline":
			for _, inner := range fields(f.Type) {
				list = append(list, field{inner.key, slices.Concat([]int{i}, inner.index)})
			}
		default:
			if name == "" {
				name = strings.ToLower(f.Name)
			}
			list = append(list, field{name, []int{i}})
		}
	}
	return list
}

// Keys returns the path of every value that can be configured in a struct, in order, with *
// for a name that the user gives.
func Keys(config any) []string {
	return keys(reflect.TypeOf(config), "")
}

func keys(t reflect.Type, path string) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isLeaf(t):
		return []string{path}
	case t.Kind() == reflect.Map:
		return keys(t.Elem(), join(path, "*"))
	case t.Kind() == reflect.Slice && !isLeaf(t.Elem()):
		return keys(t.Elem(), join(path, "*"))
	case t.Kind() != reflect.Struct:
		return []string{path}
	}
	var all []string
	for _, f := range fields(t) {
		all = append(all, keys(t.FieldByIndex(f.index).Type, join(path, f.key))...)
	}
	return all
}

// isLeaf reports whether a value of the type is written as one scalar.
func isLeaf(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return true
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float64, reflect.Int, reflect.Int8, reflect.Int16,
		reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return false
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
