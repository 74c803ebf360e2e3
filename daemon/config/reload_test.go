package config

import (
	"reflect"
	"slices"
	"testing"
)

// TestReload changes every key: those that can change have, the others have not.
func TestReload(t *testing.T) {
	old, next := Default(), Default()
	disturb(reflect.ValueOf(&next).Elem())
	if got := Changed(old, next); !slices.Equal(got, Keys()) {
		t.Fatalf("changed are %q, want all keys", got)
	}
	c := old
	Reload(&c, next)
	for _, key := range Changed(old, c) {
		if !Reloadable[key] {
			t.Errorf("%s changed, and is not reloadable", key)
		}
	}
	for _, key := range Changed(c, next) {
		if Reloadable[key] {
			t.Errorf("%s did not change, and is reloadable", key)
		}
	}
}

// disturb gives every field another value.
func disturb(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Struct:
			disturb(f)
		case reflect.String:
			f.SetString(f.String() + "x")
		case reflect.Bool:
			f.SetBool(!f.Bool())
		case reflect.Int, reflect.Int64:
			f.SetInt(f.Int() + 1)
		case reflect.Uint64:
			f.SetUint(f.Uint() + 1)
		case reflect.Slice:
			f.Set(reflect.ValueOf([]string{"x"}))
		case reflect.Map:
			f.Set(reflect.ValueOf(map[string]string{"x": "y"}))
		default:
			panic("a kind of field that this test does not know: " + f.Kind().String())
		}
	}
}
