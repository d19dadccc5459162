package ui_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web/ui/internal/uitest"
)

// cells returns the cells of the parts on a page, and the classes of their states.
func cells(doc *html.Node) (all []*html.Node, byState map[string]int) {
	byState = make(map[string]int)
	for _, n := range elements(doc) {
		if n.Data == "li" && n.Parent != nil && attr(n.Parent, "id") == "parts" {
			all = append(all, n)
			byState[strings.TrimPrefix(attr(n, "class"), "part p-")]++
		}
	}
	return all, byState
}

func TestVideoPage_ShowsPartsAndFoldsTheirAttempts(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	id := uitest.SeedDivided(t, s.pool, s.seeded.Workers, "/srv/films/long.mkv", 250, false)
	started := time.Now()
	_, body, _ := s.get("/videos/" + id.String())
	t.Logf("%d bytes in %s", len(body), time.Since(started))
	doc := parse(t, body)
	for _, wrong := range htmlProblems(doc) {
		t.Error(wrong)
	}
	all, byState := cells(doc)
	if got, want := fmt.Sprint(byState), "map[completed:83 failed:1 inprogress:3 pending:163]"; got != want {
		t.Errorf("the cells are %s, want %s", got, want)
	}
	for i, want := range map[int]string{
		0: "part 1: completed, attempt 1, after 19 s on north 1 (media-2.example.org)", 19: "part 20: completed, attempt 2, after",
		83: "part 84: in progress, 20% · 1.50× · 0:20 left, attempt 1, for ", 86: "part 87: failed, after 2 attempts, last on ",
		249: "part 250: pending",
	} {
		if got := attr(all[i], "title"); !strings.HasPrefix(got, want) {
			t.Errorf("the title is %q, want %q", got, want)
		}
	}
	for _, want := range []string{
		`<ol id="parts" class="parts" aria-hidden="true">`, "83/250 parts, 3 running on 2 hosts, 1 retrying, 4.50×",
		"<li>parts 1 to 83: completed</li>", "<li>parts 88 to 250: pending</li>", "<b>transcode</b>, 83 parts",
		"<b>transcode part 87</b>, attempt 2", "42 parts on north 1 (media-2.example.org), 19 s each on average",
		"cuelight show --parts " + id.String(),
		`<span class="of-host" title="media-1.example.org">`, `<span class="of-host" title="north 1">`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if n := strings.Count(body, `<li id="a-`); n != 9 { // ingest, metadata, divided, four of part 20, 40, 60 and 80, two of part 87
		t.Errorf("%d attempts are listed", n)
	}
	if n := strings.Count(body, "<details open>"); n != 1 { // part 87, the others were completed later
		t.Errorf("the errors of %d attempts are open", n)
	}
	if n := strings.Count(body, "<rect class=\"b-"); n > 40 {
		t.Errorf("the timeline has %d bars", n)
	}
	_, board, _ := s.get("/")
	for _, want := range []string{"transcode: divided into parts, 34%, 83/250 · ", "83/250 parts, 3 running on 2 hosts, 1 retrying"} {
		if !strings.Contains(board, want) {
			t.Errorf("the board does not show %q", want)
		}
	}
}

func TestVideoPage_GroupsManyParts(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	id := uitest.SeedDivided(t, s.pool, s.seeded.Workers, "/srv/films/scratched.mkv", 725, true)
	_, body, _ := s.get("/videos/" + id.String())
	all, byState := cells(parse(t, body))
	if got, want := fmt.Sprint(byState), "map[cancelled:161 completed:80 dead:1]"; got != want {
		t.Errorf("the cells are %s, want %s", got, want)
	}
	if got := attr(all[81], "title"); got != "parts 244 to 246: 1 dead, 2 cancelled" {
		t.Errorf("the cell of the dead part says %q", got)
	}
	for _, want := range []string{
		"33%, 241/725 parts, none running, 1 dead", "<li>part 245: dead, after 3 attempts, last on ", `title="transcode: dead, 241/725 parts"`,
		"Input/output error",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
}

func TestVideoPage_ShowsASinglePartAsTheStage(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	id := uitest.SeedDivided(t, s.pool, s.seeded.Workers, "/srv/films/short.mkv", 1, false)
	_, body, _ := s.get("/videos/" + id.String())
	if all, _ := cells(parse(t, body)); len(all) != 0 || strings.Contains(body, "1 part") || strings.Contains(body, "of-host") {
		t.Errorf("%d cells are shown", len(all))
	}
	if !strings.Contains(body, `title="transcode: divided into parts, 20%, 1.50× · `) {
		t.Error("the progress of the part is not that of the stage")
	}
}

func TestRetry_KeepsPartsUnlessItIsFresh(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	id := uitest.SeedDivided(t, s.pool, s.seeded.Workers, "/srv/films/scratched.mkv", 30, true)
	page := "/videos/" + id.String()
	_, form, _ := s.get(page + "/retry")
	if !strings.Contains(form, `<input type="checkbox" name="fresh" value="1">Also do completed parts of transcode again</label>`) {
		t.Error("the form does not offer it")
	}
	for _, c := range []struct {
		form   url.Values
		status store.Status
		parts  int
	}{
		{url.Values{"from": {"transcode"}}, store.StatusDivided, 30},
		{url.Values{"from": {"transcode"}, "fresh": {"1"}}, store.StatusPending, 0},
	} {
		if status, body := s.post(page+"/retry", c.form); status != 200 || !strings.Contains(body, "Retrying from transcode.") {
			t.Fatalf("%v: status %d", c.form, status)
		}
		task, err := s.st.Get(t.Context(), id)
		parts, err2 := s.st.Parts(t.Context(), id)
		if err != nil || err2 != nil || task.Stages[1].Status != c.status || len(parts) != c.parts {
			t.Errorf("%v: the stage is %s with %d parts, %v, %v", c.form, task.Stages[1].Status, len(parts), err, err2)
		}
	}
}
