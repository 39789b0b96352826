package daemon

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// envPrefix begins the name of every variable that sets a key.
const envPrefix = "NOTIFY"

// A variable that is unknown and at most this far from a known one is taken for a typing
// error, where the known one's name has at least so many bytes behind the prefix.
const (
	typoDistance = 2
	typoLength   = 6
)

// fromEnvironment sets what variables override. An unknown variable is a problem only when
// it looks like a known one: the prefix is shared with other programs and with what a
// cluster injects for its services.
func (d *decoder) fromEnvironment(target reflect.Value) {
	d.override(target, envPrefix)
	candidates := slices.DeleteFunc(slices.Sorted(maps.Keys(d.variables)), func(name string) bool {
		return len(name) < len(envPrefix)+1+typoLength
	})
	for _, name := range slices.Sorted(maps.Keys(d.env)) {
		if d.variables[name] || !strings.HasPrefix(name, envPrefix+"_") {
			continue
		}
		if best, distance := nearest(name, candidates); best != "" && distance <= typoDistance {
			d.problems = append(d.problems, Problem{"environment " + name, "unknown variable: the nearest known one is " + best})
		}
	}
}

func (d *decoder) override(v reflect.Value, name string) {
	t := v.Type()
	switch {
	case t.Kind() == reflect.Pointer:
		if v.IsNil() {
			if !d.anyVariable(name) {
				return
			}
			v.Set(reflect.New(t.Elem()))
		}
		d.override(v.Elem(), name)
	case isLeaf(t):
		d.overrideLeaf(v, name, func(text string) error { return setLeaf(v, text) })
	case t.Kind() == reflect.Slice && isLeaf(t.Elem()):
		d.overrideLeaf(v, name, func(text string) error { return setList(v, text) })
	case t.Kind() == reflect.Struct:
		for _, f := range fields(t) {
			d.override(v.FieldByIndex(f.index), name+"_"+variable(f.key))
		}
	case t.Kind() == reflect.Map:
		d.overrideMap(v, name)
	}
}

func (d *decoder) overrideLeaf(v reflect.Value, name string, set func(string) error) {
	d.variables[name] = true
	raw, found := d.env[name]
	if !found {
		return
	}
	text, expanded, err := expand(raw, d.env)
	if err == nil {
		err = set(text)
	}
	switch {
	case err == nil:
	case expanded:
		d.problems = append(d.problems, Problem{"environment " + name, err.Error()})
	default:
		d.problems = append(d.problems, Problem{"environment " + name, fmt.Sprintf("%q: %s", raw, err)})
	}
}

// overrideMap overrides in the elements that the file names and in those that only
// variables name; the latter get the name in lower case.
func (d *decoder) overrideMap(v reflect.Value, prefix string) {
	names := map[string]string{} // by variable
	for _, key := range v.MapKeys() {
		names[variable(key.String())] = key.String()
	}
	for _, key := range keys(v.Type().Elem(), "") {
		suffix := "_" + variable(key)
		for name := range d.env {
			middle, found := strings.CutPrefix(name, prefix+"_")
			middle, ends := strings.CutSuffix(middle, suffix)
			if found && ends && middle != "" && names[middle] == "" {
				names[middle] = strings.ToLower(middle)
			}
		}
	}
	for _, middle := range slices.Sorted(maps.Keys(names)) {
		element := reflect.New(v.Type().Elem()).Elem()
		key := reflect.ValueOf(names[middle])
		if old := v.MapIndex(key); old.IsValid() {
			element.Set(old)
		}
		d.override(element, prefix+"_"+middle)
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		v.SetMapIndex(key, element)
	}
}

func (d *decoder) anyVariable(prefix string) bool {
	for name := range d.env {
		if name == prefix || strings.HasPrefix(name, prefix+"_") {
			return true
		}
	}
	return false
}

func setList(v reflect.Value, text string) error {
	parts := strings.Split(text, ",")
	items := reflect.MakeSlice(v.Type(), len(parts), len(parts))
	for i, part := range parts {
		if err := setLeaf(items.Index(i), strings.TrimSpace(part)); err != nil {
			return err
		}
	}
	v.Set(items)
	return nil
}

// variable returns the part of a variable's name that stands for a key.
func variable(key string) string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}
