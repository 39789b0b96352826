package daemon

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"
)

// setLeaf sets a value from its text. Its errors do not quote the text.
func setLeaf(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return errors.New("not a duration: write a number and ms, s, m or h, such as 5s")
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return nil
	case reflect.Bool:
		if text != "true" && text != "false" {
			return errors.New("must be true or false")
		}
		v.SetBool(text == "true")
		return nil
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return errors.New("not a number")
		}
		v.SetFloat(f)
		return nil
	}
	return setInteger(v, text)
}

func setInteger(v reflect.Value, text string) error {
	if v.CanUint() {
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return wholeNumberError(err, fmt.Sprintf("0 to %d", ^uint64(0)>>(64-v.Type().Bits())))
		}
		v.SetUint(n)
		return nil
	}
	bits := v.Type().Bits()
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		limit := int64(^uint64(0) >> (65 - bits))
		return wholeNumberError(err, fmt.Sprintf("%d to %d", -limit-1, limit))
	}
	v.SetInt(n)
	return nil
}

func wholeNumberError(err error, bounds string) error {
	if errors.Is(err, strconv.ErrRange) {
		return errors.New("the number is out of range: " + bounds)
	}
	return errors.New("not a whole number")
}
