package store

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cuelight/cuelight/internal/statement"
)

func FuzzParseID(f *testing.F) {
	f.Add("01a1f897-3d3a-79a9-8ad1-302c5e8ba6ae")
	f.Add("01A1F8973D3A79A98AD1302C5E8BA6AE")
	f.Add("00000000-0000-0000-0000-000000000000")
	f.Add("01a1f897-3d3a79a9-8ad1-302c-5e8ba6ae")
	f.Add("{01a1f897-3d3a-79a9-8ad1-302c5e8ba6ae}")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			if !id.IsZero() {
				t.Errorf("%q is parsed as %s, with an error", s, id)
			}
			return
		}
		text := id.String()
		if lower := strings.ToLower(s); lower != text && lower != strings.ReplaceAll(text, "-", "") {
			t.Errorf("%q is parsed as %s", s, text)
		}
		var parsed ID
		if err := parsed.UnmarshalText([]byte(text)); err != nil || parsed != id {
			t.Errorf("%s is parsed as %s, %v", text, parsed, err)
		}
		if value, err := id.UUIDValue(); err != nil || value.Valid == id.IsZero() {
			t.Errorf("%s is sent as %+v, %v", id, value, err)
		}
	})
}

// nodesOf parses "a; b; c a b": stages, each with the stages it needs.
func nodesOf(spec string) []Node {
	var nodes []Node
	for part := range strings.SplitSeq(spec, ";") {
		words := strings.Split(strings.TrimSpace(part), " ")
		nodes = append(nodes, Node{Name: words[0], Needs: words[1:]})
	}
	return nodes
}

var (
	sqlText       = regexp.MustCompile(`--[^\n]*|'[^'\n]*'`)
	sqlIdentifier = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
)

func FuzzGraph(f *testing.F) {
	f.Add("video", "ingest; transcode ingest; metadata ingest; assemble transcode metadata; publish assemble")
	f.Add("order", "select; select_wake select; from select; end from select")
	f.Add("p", "a c; b a; c b")
	f.Add("p", "a a")
	f.Add("p", "a b b; b")
	f.Add("p'; drop table tasks; --", "a")
	f.Add(strings.Repeat("p", 30),
		"a_very_long_name_for_a_stage; another_very_long_name_for_it a_very_long_name_for_a_stage")
	f.Add("p", "a; b a; c a b; d a b c; e a b c d; f e d; g f a")
	f.Fuzz(func(t *testing.T, name, spec string) {
		nodes := nodesOf(spec)
		g, err := NewGraph(name, nodes...)
		if err != nil {
			if !errors.Is(err, ErrGraph) || !utf8.ValidString(err.Error()) {
				t.Errorf("error is %q", err)
			}
			return
		}
		checkGraph(t, g, nodes)
		New(nil, g) // writes all statements
		for _, sql := range []string{g.SchemaSQL(), g.TriggersSQL()} {
			for _, id := range sqlIdentifier.FindAllString(sqlText.ReplaceAllString(sql, ""), -1) {
				if len(id) > maxIdentifier {
					t.Errorf("identifier %s has %d bytes", id, len(id))
				}
			}
		}
	})
}

// checkGraph checks that the graph agrees with its nodes.
func checkGraph(t *testing.T, g Graph, nodes []Node) {
	t.Helper()
	for i, n := range nodes {
		if at, ok := g.Stage(n.Name); !ok || at != i || g.Stages()[i] != n.Name {
			t.Errorf("stage %s is number %d, %t", n.Name, at, ok)
		}
		if len(g.Channel(n.Name)) > maxIdentifier || slices.Contains(g.upstream[i], -1) ||
			!slices.Contains(g.upstream[i], i) {
			t.Errorf("stage %s: channel %s, upstream %v", n.Name, g.Channel(n.Name), g.upstream[i])
		}
		for _, need := range n.Needs {
			j, _ := g.Stage(need)
			if !slices.Contains(g.Feeds(j), i) || !slices.Contains(g.upstream[i], j) || slices.Contains(g.upstream[j], i) {
				t.Errorf("%s needs %s: feeds %v, upstream %v", n.Name, need, g.Feeds(j), g.upstream[i])
			}
		}
	}
	// The text of a graph identifies it.
	parsed := nodesOf(strings.NewReplacer(" needs ", " ", ",", "").Replace(g.String()))
	if !slices.EqualFunc(parsed, nodes, func(a, b Node) bool {
		return a.Name == b.Name && slices.Equal(a.Needs, b.Needs)
	}) {
		t.Errorf("the text %q does not describe %v", g, nodes)
	}
}

func FuzzSubmission(f *testing.F) {
	f.Add("a.mp4", []byte(`{"title": "Holiday"}`), "r1", "u1")
	f.Add("", []byte(nil), "", "")
	f.Add("a\x00", []byte(" \n"), "\xff", "")
	f.Add("a", []byte(`[{}]`), "", "")
	f.Add("a", []byte("\u00a0{}"), "", "")
	f.Add("a", []byte(`{"a": 1}}`), "", "")
	f.Add("a", []byte(`{"a": "\ud800"}`), "", "")
	f.Fuzz(func(t *testing.T, source string, params []byte, request, user string) {
		sub := Submission{Source: source, Params: params, RequestID: request, UserID: user}
		given, err := New(nil, Video()).columnsOf([]Submission{sub})
		if err != nil {
			if !errors.Is(err, ErrInvalid) || !utf8.ValidString(err.Error()) || strings.ContainsRune(err.Error(), 0) {
				t.Errorf("error is %q", err)
			}
			return
		}
		if source == "" || !utf8.ValidString(source+request+user) || strings.ContainsRune(source+request+user, 0) {
			t.Errorf("accepted: %q, %q, %q", source, request, user)
		}
		var object map[string]json.RawMessage
		if text := given.params[0]; json.Unmarshal([]byte(text), &object) != nil || object == nil {
			t.Errorf("params are %q", text)
		}
	})
}

func FuzzCleanText(f *testing.F) {
	f.Add("no luck", 1)
	f.Add("bad \xff bytes and \x00", 1)
	f.Add("é", 40000)
	f.Add("\xf0\x9f\x98", 30000)
	f.Fuzz(func(t *testing.T, s string, times int) {
		if times < 0 || times > 100000 || len(s) > 100 {
			return
		}
		whole := strings.Repeat(s, times)
		got := statement.CleanText(whole)
		if !utf8.ValidString(got) || strings.ContainsRune(got, 0) || len(got) > 64<<10+len(" …") {
			t.Errorf("%d times %q is %d bytes, valid %t", times, s, len(got), utf8.ValidString(got))
		}
		if utf8.ValidString(whole) && !strings.ContainsRune(whole, 0) &&
			!strings.HasPrefix(whole, strings.TrimSuffix(got, " …")) {
			t.Errorf("%q became %q", whole, got)
		}
	})
}
