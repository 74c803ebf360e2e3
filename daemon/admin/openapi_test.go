package admin_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/admin/admintest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/discovery/topology"
)

// schema is the part of JSON Schema that the description uses.
type schema struct {
	Ref        string            `json:"$ref"`
	Type       string            `json:"type"`
	Format     string            `json:"format"`
	Items      *schema           `json:"items"`
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
	Enum       []string          `json:"enum"`
}

type openAPI struct {
	Paths      map[string]map[string]any `json:"paths"`
	Components struct {
		Schemas map[string]schema `json:"schemas"`
	} `json:"components"`
}

func describe(t *testing.T) (doc openAPI) {
	t.Helper()
	if err := json.Unmarshal(admin.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// described are the types that the description has to have, each with the fields of the Go type.
var described = []any{
	admin.Status{}, admin.Counts{}, admin.Certificate{}, admin.Peer{}, admin.Session{}, admin.Limit{}, admin.Region{}, admin.Offer{}, admin.Pipe{}, admin.Transfer{},
	admin.GPUSummary{}, admin.GPUs{}, admin.GPU{}, admin.GPUInstance{}, admin.NVLink{}, admin.Fabric{}, admin.Xid{},
	admin.Topology{}, topology.Node{}, topology.Device{}, admin.Nearest{}, admin.Placement{}, admin.PlacementNode{}, admin.PlacementRegion{}, admin.Share{},
	admin.NICs{}, admin.NIC{}, admin.RDMADevice{}, admin.RDMAPort{}, admin.GID{}, admin.GIDChoice{}, admin.Stream{},
	admin.Explain{}, admin.ExplainTried{}, admin.BenchOptions{}, admin.BenchRow{}, admin.Error{},
}

func TestSchemasAreTheTypes(t *testing.T) {
	want := map[string]schema{}
	for _, v := range described {
		typ := reflect.TypeOf(v)
		want[typ.Name()] = object(typ)
	}
	got := describe(t).Components.Schemas
	for _, s := range got {
		slices.Sort(s.Required)
		for name, p := range s.Properties {
			p.Enum = nil // types do not have the words
			s.Properties[name] = p
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("types.go and openapi.json differ (-types +openapi):\n%s", diff)
	}
}

// TestWordsAreThoseOfTheMachine: programs that check what they read know every session and offer.
func TestWordsAreThoseOfTheMachine(t *testing.T) {
	want := []string{transfer.Worker.String(), transfer.Scheduler.String(), transfer.Endpoint.String()}
	if got := describe(t).Components.Schemas["Session"].Properties["role"].Enum; !slices.Equal(got, want) {
		t.Errorf("roles of sessions: %q, want %q", got, want)
	}
	if got := describe(t).Components.Schemas["Offer"].Properties["state"].Enum; !slices.Equal(got, transfer.OfferStates) {
		t.Errorf("states of offers: %q, want %q", got, transfer.OfferStates)
	}
}

func object(t reflect.Type) schema {
	s := schema{Type: "object", Properties: map[string]schema{}}
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		s.Properties[name] = typed(f.Type, option)
		if option != "omitempty" && option != "omitzero" {
			s.Required = append(s.Required, name)
		}
	}
	slices.Sort(s.Required)
	return s
}

func typed(t reflect.Type, option string) schema {
	switch {
	case t.Kind() == reflect.Pointer:
		return typed(t.Elem(), option)
	case t == reflect.TypeFor[time.Time]():
		return schema{Type: "string", Format: "date-time"}
	case t.Kind() == reflect.Struct:
		return schema{Ref: "#/components/schemas/" + t.Name()}
	case t.Kind() == reflect.Slice:
		item := typed(t.Elem(), "")
		return schema{Type: "array", Items: &item}
	case t.Kind() == reflect.Bool:
		return schema{Type: "boolean"}
	case t.Kind() == reflect.Float64:
		return schema{Type: "number"}
	case t.Kind() == reflect.String || option == "string":
		return schema{Type: "string"}
	}
	return schema{Type: "integer"}
}

// TestPathsAreServed: what is described is there, and says so without an error.
func TestPathsAreServed(t *testing.T) {
	doc, served := describe(t), admin.New(admintest.Example(), nil)
	for path, methods := range doc.Paths {
		for method := range methods {
			w := httptest.NewRecorder()
			served.ServeHTTP(w, httptest.NewRequest(strings.ToUpper(method), path, strings.NewReader("{}")))
			if w.Code != http.StatusOK {
				t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
			}
		}
	}
	want := []string{
		"/v1/bench", "/v1/drain", "/v1/explain", "/v1/gpus", "/v1/nics", "/v1/offers", "/v1/openapi.json", "/v1/peers", "/v1/pipes", "/v1/regions", "/v1/sessions", "/v1/status", "/v1/topology", "/v1/transfers",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(doc.Paths))); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

func TestReferencesResolve(t *testing.T) {
	var doc any
	if err := json.Unmarshal(admin.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"\$ref": "#/([^"]+)"`).FindAllStringSubmatch(string(admin.OpenAPI), -1) {
		at := doc
		for part := range strings.SplitSeq(m[1], "/") {
			o, _ := at.(map[string]any)
			at = o[part]
		}
		if at == nil {
			t.Errorf("%s leads nowhere", m[1])
		}
	}
}
