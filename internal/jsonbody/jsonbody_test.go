package jsonbody_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/jsonbody"
	"github.com/cuelight/cuelight/internal/problem"
)

type inner struct {
	Name string `json:"name"`
}

type body struct {
	inner
	Any    json.RawMessage  `json:"any"`
	At     *time.Time       `json:"at"`
	List   []inner          `json:"list"`
	ByName map[string]inner `json:"by_name"`
	Number int              `json:"number"`
	Hidden string           `json:"-"`
}

func TestDecode_RefusesUnknownAndRepeatedMembers(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	allowed := "; allowed: name, any, at, list, by_name, number"
	for _, c := range []struct{ text, detail string }{
		{`{"name":"n","list":[{"name":"m"}],"by_name":{"Any Name":{"name":"o"}},"any":{"B":[{"C":1}]},"at":null}`, ""},
		{` {"at":"2026-11-23T12:00:00Z"} `, ""},
		{`null`, ""},
		{`{"nam":"n"}`, `unknown member "nam"` + allowed},
		{`{"Name":"n"}`, `unknown member "Name"` + allowed},
		{`{"\u017fumber":1}`, "unknown member \"\u017fumber\"" + allowed},
		{`{"Hidden":"n"}`, `unknown member "Hidden"` + allowed},
		{`{"-":"n"}`, `unknown member "-"` + allowed},
		{`{"list":[{"name":"m"},{"any":1}]}`, `unknown member "any"; allowed: name`},
		{`{"by_name":{"x":{"any":1}}}`, `unknown member "any"; allowed: name`},
		{`{"number":"x","list":[{"any":1}]}`, `unknown member "any"; allowed: name`},
		{`{"name":"n","name":"m"}`, `the body is invalid: the member "name" is repeated`},
		{`{"any":{"a":1,"a":2}}`, `the body is invalid: the member "a" is repeated`},
		{`{"any":` + deep + `}`, "the body is invalid: it is nested more than 32 levels deep"},
		{`{"list":[` + strings.Repeat("{},", 10_000) + `{}]}`, "the body is invalid: a list has more than 10000 elements"},
		{`{"any":[` + strings.Repeat("{},", 10_000) + `{}]}`, ""},
		{`{} {}`, "the body is invalid: data follows the JSON value"},
		{`{"name":"n"`, "the body is invalid: unexpected EOF"},
		{``, "the body is invalid: unexpected EOF"},
		{`{"number":"x"}`, "the body is invalid: json: cannot unmarshal string into Go struct field body.number of type int"},
	} {
		var v body
		got := ""
		if err := jsonbody.Decode([]byte(c.text), &v); err != nil {
			got = err.Error()
			if p, ok := errors.AsType[*problem.Problem](err); !ok || p.Kind != problem.InvalidRequest {
				t.Errorf("%s: the error is %#v", c.text, err)
			}
		}
		if got != c.detail {
			t.Errorf("%s: got %q, want %q", c.text, got, c.detail)
		}
	}
}

func TestDecode_AllowsNoMembersInAnEmptyStruct(t *testing.T) {
	t.Parallel()
	if err := jsonbody.Decode([]byte(`{}`), &struct{}{}); err != nil {
		t.Error(err)
	}
	err := jsonbody.Decode([]byte(`{"a":1}`), &struct{}{})
	if want := `unknown member "a"; no members are allowed`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRead_LimitsTheBody(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]problem.Kind{"12345": "", "123456": problem.TooLarge} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(text))
		got, err := jsonbody.Read(httptest.NewRecorder(), r, 5)
		var kind problem.Kind
		if p, ok := errors.AsType[*problem.Problem](err); ok {
			kind = p.Kind
		}
		if kind != want || err == nil && string(got) != text {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"name":"a"}`, `{"any":1,"any":2}`, `{"list":[{"name":""}]}`, `{} {}`, `{"any":{"b":[1,"x",null]}}`, `"\ud800"`, `{`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var strict, lax body
		if err := jsonbody.Decode([]byte(text), &strict); err != nil {
			return
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&lax); err != nil {
			t.Errorf("%q is accepted, but %v", text, err)
		}
	})
}
