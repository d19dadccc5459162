package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cuelight/cuelight/internal/formattest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

// openAPIDocument is openapi.json.
type openAPIDocument map[string]any

var readOpenAPI = sync.OnceValues(func() (d openAPIDocument, err error) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &d)
	return d, err
})

func openAPI(t testing.TB) openAPIDocument {
	t.Helper()
	d, err := readOpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d openAPIDocument) paths() map[string]any { return d["paths"].(map[string]any) }

// operation finds the description of a request.
func (d openAPIDocument) operation(method, path string) (at string, op map[string]any) {
	best := ""
	for template := range d.paths() {
		pattern := "^" + regexp.MustCompile(`\\\{(path|name)\\\}$`).ReplaceAllString(regexp.QuoteMeta(template), ".+") + "$"
		pattern = regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(pattern, "[^/]+")
		if regexp.MustCompile(pattern).MatchString(path) &&
			(best == "" || strings.Count(template, "{") < strings.Count(best, "{")) {
			best = template
		}
	}
	item, _ := d.paths()[best].(map[string]any)
	if method == "HEAD" && item["head"] == nil {
		method = "GET"
	}
	op, _ = item[strings.ToLower(method)].(map[string]any)
	return "/paths/" + escape(best) + "/" + strings.ToLower(method), op
}

// escape writes a part of a JSON pointer in a URL.
func escape(s string) string {
	s = strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
	return strings.NewReplacer("{", "%7B", "}", "%7D", "*", "%2A").Replace(s)
}

// checkAgainstOpenAPI fails the test if openapi.json does not describe the response.
func checkAgainstOpenAPI(t testing.TB, method, path string, resp *http.Response, body []byte) {
	t.Helper()
	d := openAPI(t)
	at, op := d.operation(method, path)
	if op == nil {
		return // the path belongs to the dashboard or does not exist
	}
	if resp.StatusCode == http.StatusTemporaryRedirect {
		return // redirects to the path without its dots
	}
	responses := op["responses"].(map[string]any)
	status := strconv.Itoa(resp.StatusCode)
	entry, ok := responses[status].(map[string]any)
	if !ok {
		status = status[:1] + "XX"
		if entry, ok = responses[status].(map[string]any); !ok {
			t.Fatalf("%s %s: nothing is said of the status %d", method, path, resp.StatusCode)
		}
	}
	at += "/responses/" + status
	if ref, ok := entry["$ref"].(string); ok {
		at = strings.TrimPrefix(ref, "#")
		entry = d["components"].(map[string]any)["responses"].(map[string]any)["Problem"].(map[string]any)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	content, _ := entry["content"].(map[string]any)
	if content["*/*"] != nil || len(body) == 0 || len(content) == 0 && status == "303" {
		return
	}
	if content[media] == nil {
		t.Fatalf("%s %s: nothing is said of an answer %d of type %q: %s", method, path, resp.StatusCode, media, body)
	}
	if !strings.HasSuffix(media, "json") {
		return
	}
	if err := formattest.Document("openapi.json", at+"/content/"+escape(media)+"/schema", body); err != nil {
		t.Fatalf("%s %s: the answer %d is not as described: %v\n%s", method, path, resp.StatusCode, err, body)
	}
}

// checkRequestAgainstOpenAPI fails the test if openapi.json does not allow a body that the server
// has accepted.
func checkRequestAgainstOpenAPI(t testing.TB, method, path, body string) {
	t.Helper()
	at, op := openAPI(t).operation(method, path)
	if op == nil {
		t.Fatalf("%s %s is not described", method, path)
	}
	if err := formattest.Document("openapi.json", at+"/requestBody/content/application~1json/schema", []byte(body)); err != nil {
		t.Errorf("%s %s: the request is not as described: %v\n%s", method, path, err, body)
	}
}

func TestOpenAPI_DescribesExactlyTheRoutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var routes, described []string
	for _, r := range web.Routes(b.server) {
		routes = append(routes, strings.Replace(r, "...}", "}", 1))
	}
	d := openAPI(t)
	for path, item := range d.paths() {
		for method := range item.(map[string]any) {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(routes)
	slices.Sort(described)
	if !slices.Equal(routes, described) {
		t.Errorf("routes:\n%s\ndescribed:\n%s", strings.Join(routes, "\n"), strings.Join(described, "\n"))
	}
}

// The description must say that unknown properties of a request are rejected. Responses may
// get more properties one day, so only formattest closes them.
func TestOpenAPI_RequestBodiesAreClosed(t *testing.T) {
	t.Parallel()
	doc := openAPI(t)
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	var check func(where string, v any)
	check = func(where string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				check(ref, schemas[strings.TrimPrefix(ref, "#/components/schemas/")])
			}
			if v["properties"] != nil && v["additionalProperties"] != false {
				t.Errorf("%s: %v is open", where, v["properties"])
			}
			for _, w := range v {
				check(where, w)
			}
		case []any:
			for _, w := range v {
				check(where, w)
			}
		}
	}
	for path, item := range doc.paths() {
		for method, op := range item.(map[string]any) {
			body, _ := op.(map[string]any)["requestBody"].(map[string]any)
			content, _ := body["content"].(map[string]any)
			check(method+" "+path, content["application/json"])
		}
	}
}

// Generators treat an object without a description as empty, and a property with a default
// as always present.
func TestOpenAPI_IsClearToGenerators(t *testing.T) {
	t.Parallel()
	var check func(where string, v any)
	check = func(where string, v any) {
		switch v := v.(type) {
		case map[string]any:
			kinds, _ := v["type"].([]any)
			isObject := v["type"] == "object" || slices.Contains(kinds, "object")
			if isObject && v["properties"] == nil && v["additionalProperties"] == nil {
				t.Errorf("%s: it is not said whether there may be members", where)
			}
			members, _ := v["properties"].(map[string]any)
			for name, m := range members {
				if schema, _ := m.(map[string]any); schema["default"] != nil {
					t.Errorf("%s/%s has a default: generators would require it", where, name)
				}
			}
			for name, w := range v {
				check(where+"/"+name, w)
			}
		case []any:
			for i, w := range v {
				check(fmt.Sprint(where, "/", i), w)
			}
		}
	}
	check("", map[string]any(openAPI(t)))
}

func TestOpenAPI_IsConsistent(t *testing.T) {
	t.Parallel()
	d := openAPI(t)
	if d["openapi"] != "3.1.0" {
		t.Errorf("version is %v", d["openapi"])
	}
	ids := make(map[string]string)
	schemas := slices.Sorted(maps.Keys(d["components"].(map[string]any)["schemas"].(map[string]any)))
	for _, name := range schemas {
		if err := formattest.Schema("openapi.json", "/components/schemas/"+name); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
	used, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range schemas {
		if !bytes.Contains(used, []byte(`"#/components/schemas/`+name+`"`)) {
			t.Errorf("schema %s is of no use", name)
		}
	}
	for path, item := range d.paths() {
		for method, v := range item.(map[string]any) {
			op := v.(map[string]any)
			id, _ := op["operationId"].(string)
			if other, twice := ids[id]; twice || id == "" || op["summary"] == "" {
				t.Errorf("%s %s: id %q, as %s, summary %q", method, path, id, other, op["summary"])
			}
			ids[id] = path
			var inPath []string
			params, _ := op["parameters"].([]any)
			for _, p := range params {
				if p := p.(map[string]any); p["in"] == "path" && p["required"] == true {
					inPath = append(inPath, fmt.Sprint("{", p["name"], "}"))
				}
			}
			if want := regexp.MustCompile(`\{[a-z]+\}`).FindAllString(path, -1); !slices.Equal(inPath, want) {
				t.Errorf("%s %s: parameters in the path are %v", method, path, inPath)
			}
		}
	}
}

func TestOpenAPI_ListsAllEnumValues(t *testing.T) {
	t.Parallel()
	d := openAPI(t)
	enum := func(schema, member string) (words []string) {
		s := d["components"].(map[string]any)["schemas"].(map[string]any)[schema].(map[string]any)
		if member != "" {
			s = s["properties"].(map[string]any)[member].(map[string]any)
		}
		for _, w := range s["enum"].([]any) {
			words = append(words, w.(string))
		}
		return words
	}
	var types []string
	for _, typ := range store.EventTypes() {
		types = append(types, string(typ))
	}
	if got := enum("Event", "type"); !slices.Equal(got, types) {
		t.Errorf("types of events are %v, described %v", types, got)
	}
}

func TestOpenAPI_NamesTheBasePath(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.BasePath = "/cue" })
	var doc struct {
		Servers []struct{ URL string }
	}
	b.do(call{method: "GET", path: "/cue/openapi.json", as: readText}).wantStatus(200, &doc)
	if len(doc.Servers) != 1 || doc.Servers[0].URL != "/cue" {
		t.Errorf("servers are %v", doc.Servers)
	}
}
