package problem_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/problem"
)

// A row of the table in docs/http.md names kinds, and their statuses in the same order or one for all.
var row = regexp.MustCompile("(?m)^\\| ((?:`[a-z-]+`(?:, )?)+) \\| ([0-9, ]+) \\|")

func TestKinds_HaveTheStatusesOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := row.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 20 {
		t.Fatalf("docs/http.md has %d rows of problems", len(rows))
	}
	for _, r := range rows {
		statuses := strings.Split(r[2], ", ")
		for i, name := range strings.Split(r[1], ", ") {
			p := problem.New(problem.Kind(strings.Trim(name, "`")), "detail")
			want := statuses[min(i, len(statuses)-1)]
			if got := fmt.Sprint(p.Status()); got != want {
				t.Errorf("%s has the status %s; the documentation says %s", name, got, want)
			}
			w := httptest.NewRecorder()
			p.Write(w, httptest.NewRequest("GET", "/", nil))
			if strings.Contains(w.Body.String(), `"title":""`) {
				t.Errorf("%s has no title: %s", name, w.Body)
			}
		}
	}
}
