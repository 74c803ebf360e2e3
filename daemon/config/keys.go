package config

import "reflect"

// Keys returns every key, with its table, in the order of the struct.
func Keys() []string { return keys(reflect.TypeFor[Config](), "") }

func keys(t reflect.Type, prefix string) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name := prefix + f.Tag.Get("toml")
		if f.Type.Kind() == reflect.Struct {
			out = append(out, keys(f.Type, name+".")...)
		} else {
			out = append(out, name)
		}
	}
	return out
}

// Reloadable says which keys SIGHUP can change; the others need a restart.
var Reloadable = map[string]bool{
	"nic_allow": true, "nic_deny": true, "gid_index": true,
	"peers.nodes": true, "peers.allow": true, "offers.default_lease": true, "offers.max_lease": true, "offers.orphan_lease": true, "offers.offer_wait": true,
	"offers.tombstone": true, "limits.sessions": true, "limits.sessions_per_uid": true, "limits.inflight": true, "limits.offers": true, "limits.pipes": true, "limits.items": true, "limits.block_ids": true, "limits.session_pinned": true, "limits.total_pinned": true, "limits.ring_memory": true,
	"log.level": true,
}

// Changed lists the keys whose values differ, in the order of the struct.
func Changed(a, b Config) []string {
	var out []string
	changed(reflect.ValueOf(a), reflect.ValueOf(b), "", &out)
	return out
}

func changed(a, b reflect.Value, prefix string, out *[]string) {
	for i := range a.NumField() {
		name := prefix + a.Type().Field(i).Tag.Get("toml")
		switch {
		case a.Field(i).Kind() == reflect.Struct:
			changed(a.Field(i), b.Field(i), name+".", out)
		case !same(a.Field(i), b.Field(i)):
			*out = append(*out, name)
		}
	}
}

// same reports whether two values are the same. An empty list or table is the same as none.
func same(a, b reflect.Value) bool {
	if k := a.Kind(); (k == reflect.Slice || k == reflect.Map) && a.Len()+b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// Reload copies from next to c the keys that can change while the daemon runs.
func Reload(c *Config, next Config) {
	reload(reflect.ValueOf(c).Elem(), reflect.ValueOf(next), "")
}

func reload(c, next reflect.Value, prefix string) {
	for i := range c.NumField() {
		name := prefix + c.Type().Field(i).Tag.Get("toml")
		switch {
		case c.Field(i).Kind() == reflect.Struct:
			reload(c.Field(i), next.Field(i), name+".")
		case Reloadable[name]:
			c.Field(i).Set(next.Field(i))
		}
	}
}
