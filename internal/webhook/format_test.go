package webhook

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

// chatMessage has what is shown of a message, in either chat format.
type chatMessage struct {
	Text    string
	Blocks  []struct{ Text struct{ Type, Text string } }
	Content string
	Flags   int

	AllowedMentions map[string][]string `json:"allowed_mentions"`
}

func parseMessage(t *testing.T, body string) (m chatMessage) {
	t.Helper()
	must(t, json.Unmarshal([]byte(body), &m))
	return m
}

func TestChatWebhooks_GetAlertsAsMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Dashboard: "https://studio.example/cuelight"})
	slack, discord, program := newReceiver(t, nil), newReceiver(t, nil), newReceiver(t, nil)
	hooks := map[*receiver]Webhook{
		slack:   b.register(Settings{URL: slack.URL, Format: FormatSlack}),
		discord: b.register(Settings{URL: discord.URL, Format: FormatDiscord}),
		program: b.register(Settings{URL: program.URL, Types: []string{"alert"}}),
	}
	b.run()
	r, err := b.store.Submit(t.Context(), store.Submission{Source: "/srv/a_<b>&`c`.mp4"})
	must(t, err)
	b.addEvent(store.StageDead, r.ID, "transcode", 3, `{"error": "exit *status* 1:\n <!channel> @everyone & [x](http://y)"}`)
	link := "https://studio.example/cuelight/videos/" + r.ID.String()

	sent := slack.waitForRequests(b, 1)[0]
	m := parseMessage(t, sent.body)
	const opener = "|Open the video>"
	want := "Stage transcode of video a_&lt;b&gt;&amp;`c`.mp4 (task " + r.ID.String() + ") is dead after attempt 3: " +
		"exit *status* 1: &lt;!channel&gt; @everyone &amp; [x](http://y)."
	if len(m.Blocks) != 2 || m.Blocks[0].Text.Text != want || m.Blocks[0].Text.Type != "plain_text" ||
		m.Blocks[1].Text.Text != "<"+link+opener || m.Blocks[1].Text.Type != "mrkdwn" {
		t.Errorf("Slack got %s\nwant the blocks %s", sent.body, want)
	}
	want = "Stage transcode of video a＿&lt;b&gt;&amp;｀c｀.mp4 (task " + r.ID.String() + ") is dead after attempt 3: " +
		"exit ＊status＊ 1: &lt;!channel&gt; ＠everyone &amp; ［x］(http://y). <" + link + opener
	if m.Text != want {
		t.Errorf("Slack got %s\nwant the text %s", sent.body, want)
	}
	must(t, sent.verify(hooks[slack].Secret))

	sent = discord.waitForRequests(b, 1)[0]
	m = parseMessage(t, sent.body)
	want = "Stage transcode of video a\\_\\<b\\>&\\`c\\`.mp4 (task " + r.ID.String() + `) is dead after attempt 3: ` +
		`exit \*status\* 1: \<!channel\> \@everyone & \[x\]\(http://y\). <` + link + `>`
	if m.Content != want || len(m.AllowedMentions) != 1 || len(m.AllowedMentions["parse"]) != 0 || m.Flags != suppressEmbeds {
		t.Errorf("Discord got %s\nwant the content %s", sent.body, want)
	}
	must(t, sent.verify(hooks[discord].Secret))

	if got := program.waitForRequests(b, 1)[0]; got.Type != AlertDead || got.Data.Task.ID != r.ID {
		t.Errorf("the program got %s", got.body)
	}
	for rc, h := range hooks {
		if all := b.deliveries(h); len(all) != 1 || all[0].Payload != program.requests()[0].body || len(rc.requests()) != 1 {
			t.Errorf("deliveries in the format %s are %+v", h.Format, all)
		}
	}
}

func TestChatWebhooks_GetOtherTypesOnRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	rc := newReceiver(t, nil)
	h := b.register(Settings{URL: rc.URL, Format: FormatDiscord, Types: []string{"completed"}})
	id := b.submit()
	b.addEvent(store.StageDead, id, "transcode", 3, "")
	b.addEvent(store.TaskCompleted, id, "", 0, "")
	b.run()
	want := "Video a.mp4 (task " + id.String() + "): completed."
	if got := parseMessage(t, rc.waitForRequests(b, 1)[0].body).Content; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if result, err := b.Test(t.Context(), h.ID); err != nil || !result.OK {
		t.Errorf("%+v, %v", result, err)
	}
	if got := parseMessage(t, rc.waitForRequests(b, 2)[1].body).Content; got != "This is a test of a webhook of Cuelight." {
		t.Errorf("the test sent %q", got)
	}
}

func TestChatWebhooks_AreRetriedAndRedelivered(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{schedule: shortSchedule(2)})
	var limited time.Time // the first answer
	rc := newReceiver(t, func(n int, _ request, w http.ResponseWriter) {
		switch n {
		case 1:
			limited = time.Now()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			if wait := time.Since(limited); wait < 900*time.Millisecond {
				t.Errorf("it was tried again after %v", wait)
			}
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	h := b.register(Settings{URL: rc.URL, Format: FormatSlack})
	b.addEvent(store.WorkerLost, store.ID{}, "", 0, `{"name": "render-7", "host": "h7"}`)
	b.run()
	waittest.Until(t, "the delivery is dead", func() bool { return b.get(h.ID).Dead == 1 })
	n, err := b.RedeliverDead(t.Context(), h.ID)
	if err != nil || n != 1 {
		t.Errorf("redelivered %d, %v", n, err)
	}
	waittest.Until(t, "the delivery is delivered", func() bool { return b.deliveries(h)[0].Status == "delivered" })
	all := rc.requests()
	if len(all) != 3 || all[2].body != all[0].body || all[2].id() != all[0].id() ||
		parseMessage(t, all[0].body).Text != "Worker render-7 on host h7 is lost." {
		t.Errorf("requests are %+v", all)
	}
}

func TestUpdate_ChangesTheFormatOfPendingDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	rc := newReceiver(t, nil)
	h := b.register(Settings{URL: rc.URL, Types: []string{"alert"}})
	must(t, b.Disable(t.Context(), h.ID, "not yet"))
	b.addEvent(store.AlertRaised, store.ID{}, "", 0, `{"name": "disk_low", "host": "h7", "disk": "data", "error": "5 GB are free"}`)
	for _, bad := range []Settings{{Format: "teams"}, {URL: rc.URL, Format: "Slack"}} {
		if _, err := b.Update(t.Context(), h.ID, bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := b.Add(t.Context(), Settings{URL: rc.URL, Format: "teams"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("Add returned %v", err)
	}
	changed, err := b.Update(t.Context(), h.ID, Settings{Format: FormatSlack})
	if err != nil || changed.Format != FormatSlack || len(changed.Types) != 1 {
		t.Errorf("changed to %+v, %v", changed, err)
	}
	must(t, b.Enable(t.Context(), h.ID))
	b.run()
	want := "Disk data of host h7 has less space than the reserve: 5 GB are free."
	if got := parseMessage(t, rc.waitForRequests(b, 1)[0].body).Text; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMessages_SayWhatHappened(t *testing.T) {
	t.Parallel()
	task := &taskData{ID: newID()}
	for _, c := range []struct {
		p    payload
		want string
	}{
		{payload{Type: AlertRepeatedFailure, Data: eventData{Task: task, Stage: "ingest", Attempt: 3, Suppressed: 2}},
			"Stage ingest of task " + task.ID.String() +
				" fails repeatedly, now in attempt 3. Before it, 2 alerts of this kind were not sent."},
		{payload{Type: "attempt_failed", Data: eventData{Task: task, Stage: "ingest", Attempt: 1, Details: []byte(`{"error": "no.\n"}`)}},
			"Attempt 1 at stage ingest of task " + task.ID.String() + " failed: no."},
		{payload{Type: AlertListenerDown, Data: eventData{Details: []byte(`{"host": "h"}`)}},
			"A daemon on host h receives no notifications from the database."},
		{payload{Type: AlertWorkerDisabled, Data: eventData{Details: []byte(`{"key": "ab", "name": "n", "reason": "bad"}`)}},
			"Key n (ab) of a remote worker was disabled: bad."},
		{payload{Type: "stage_completed", Data: eventData{Task: task, Stage: "ingest"}},
			"Stage ingest of task " + task.ID.String() + ": stage completed."},
		{payload{Type: "deleted", Data: eventData{Task: task}}, "Task " + task.ID.String() + ": deleted."},
		{payload{Type: "alert.new_kind", Data: eventData{Details: []byte(`7`)}}, "Cuelight: new kind."},
	} {
		if got := c.p.message(slackEscaper.Replace); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestMessages_AreShort(t *testing.T) {
	t.Parallel()
	w := New(Options{Dashboard: "https://" + strings.Repeat("studio.", 48) + "example"})
	for _, char := range []string{"*", "<", "&", "😀", "\x01", "é"} {
		long := strings.Repeat(char, 500)
		details, err := json.Marshal(map[string]string{"error": long, "name": long, "host": long, "disk": long, "key": long})
		must(t, err)
		for _, typ := range append(Types(), "ping", long) {
			p := payload{Type: typ, Data: eventData{
				Task: &taskData{ID: newID(), Source: "/" + long}, Stage: long, Attempt: 3, Details: details, Suppressed: 1 << 30,
			}}
			stored, err := json.Marshal(p)
			must(t, err)
			content := parseMessage(t, w.body(FormatDiscord, string(stored))).Content
			text := parseMessage(t, w.body(FormatSlack, string(stored))).Text
			if n := len(utf16.Encode([]rune(content))); n == 0 || n > 2000 {
				t.Errorf("%.20s: %d characters for Discord", typ, n)
			}
			if n := len(utf16.Encode([]rune(text))); n == 0 || n > 3000 || strings.ContainsRune(text, 1) {
				t.Errorf("%.20s: %d characters for Slack", typ, n)
			}
		}
	}
}

func TestPublicURL_HidesTheSecretOfAChat(t *testing.T) {
	t.Parallel()
	h := Webhook{URL: "https://hooks.slack.com/services/T0/B0/secret", Format: FormatSlack}
	if got := h.PublicURL(); got != "https://hooks.slack.com/…" {
		t.Error(got)
	}
	if h.Format = FormatCuelight; h.PublicURL() != h.URL {
		t.Error(h.PublicURL())
	}
}
