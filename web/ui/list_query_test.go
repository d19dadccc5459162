package ui

import (
	"net/url"
	"testing"
)

func TestBoardQuery_IgnoresInvalidValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		asked url.Values
		want  string
	}{
		{url.Values{"state": {"nonsense"}, "after": {"nonsense"}, "status": {"a\x00b"}, "q": {" \x00x\xff "}}, "q=x"},
		{url.Values{"state": {"dead"}}, "state=dead"},
		{url.Values{"status": {"dead"}}, ""}, // without a stage
		{url.Values{"stage": {"ingest"}, "status": {"dead"}}, "stage=ingest&status=dead"},
		// The first option of the form is the default.
		{url.Values{"stage": {"ingest"}}, "stage=ingest&status=pending"},
		{url.Values{"stage": {"ingest"}, "status": {"nonsense"}}, "stage=ingest&status=pending"},
	} {
		if got := readBoardQuery(c.asked).Encode(); got != c.want {
			t.Errorf("%v is read as %q, want %q", c.asked, got, c.want)
		}
	}
}

func TestBoardTabs_KeepTheOtherFilters(t *testing.T) {
	t.Parallel()
	q := readBoardQuery(url.Values{
		"state": {"running"}, "q": {"norway"}, "order": {"oldest"}, "after": {"01a1f897-3d3a-79a9-8ad1-302c5e8ba6ae"},
	})
	links := make(map[string]string)
	for _, tab := range boardTabs(q, "/below") {
		links[tab.Word] = tab.Link
		if tab.IsCurrent != (tab.Word == "Running") {
			t.Errorf("%s is current: %t", tab.Word, tab.IsCurrent)
		}
	}
	if links["Dead"] != "/below/?order=oldest&q=norway&state=dead" ||
		links["All"] != "/below/?order=oldest&q=norway" || links["Cancelled"] == "" {
		t.Errorf("links are %v", links)
	}
}
