package ui

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

// head is what concerns a video as a whole.
type head struct {
	row
	Request  string
	Params   string
	Over     []taskLink // what it was replaced by, and that by, …
	Replaces []taskLink
	Again    bool // it can be done again
	Stop     bool // it can be cancelled
	Commands []string
}

// chainLink is a task in a chain of replacements.
type taskLink struct{ ID, Short string }

func linkTo(id store.ID) taskLink {
	text := id.String()
	return taskLink{text, text[len(text)-8:]}
}

// chainLength is how far a chain of replacements is followed.
const maxReplacements = 10

// attempt is one line of the history, as it is shown.
type attempt struct {
	store.Attempt
	Took, Short    string
	Failed, Latest bool
	More           bool // the error has more than one line
	Result         string
}

func (u *UI) serveVideo(w http.ResponseWriter, r *http.Request) {
	id, err := pathID(r)
	if err != nil {
		u.fail(w, r, err)
		return
	}
	if u.o.Playback != nil {
		w.Header().Set("Content-Security-Policy", playerPolicy)
	}
	u.servePage(w, r, viewKey{page: "video", query: "id=" + id.String()}, id.String())
}

func (u *UI) loadVideo(ctx context.Context, k viewKey) (screen, error) {
	id, err := store.ParseID(k.values().Get("id"))
	if err != nil {
		return screen{}, store.ErrNotFound
	}
	t, err := u.o.Store.Get(ctx, id)
	if err != nil {
		return screen{}, err
	}
	history, err := u.o.Store.History(ctx, id)
	if err != nil {
		return screen{}, err
	}
	workers, err := u.readWorkers(ctx)
	if err != nil {
		return screen{}, err
	}
	pauses, err := u.readPauses(ctx)
	if err != nil {
		return screen{}, err
	}
	h, err := u.head(ctx, t, history, pauses, runningByToken(workers), k.canOperate)
	if err != nil {
		return screen{}, err
	}
	d := u.newRenderer()
	about := readVideoDetails(history)
	d.add("head", "", "head", h)
	d.add("stages", "", "stages", h)
	if u.o.Playback != nil {
		if p, ok := u.o.Playback(ctx, t); ok {
			d.add("player", "", "player", map[string]any{"Play": p, "Other": olderVersionReason(t.Status)})
		} else {
			d.add("player", "", "player", map[string]any{"Poster": h.Poster, "Nothing": h.Poster == "" && len(about.Rows) == 0})
		}
	}
	d.add("facts", "", "facts", about)
	d.add("gantt", "", "gantt", u.layout.drawGantt(t, history, runningByToken(workers), time.Now().Truncate(time.Second)))
	shown := latestAttempts(history, t.Source)
	for _, a := range shown {
		d.add("a-"+a.Token.String(), "attempts", "attempt", a)
	}
	if older := len(history) - len(shown); older > 0 {
		d.add("older", "attempts", "older", map[string]any{"N": older, "Command": command("show", id.String())})
	}
	if len(history) == 0 {
		d.add("no-attempts", "attempts", "noattempts", nil)
	}
	return d.screen(h.Title)
}

// otherVersion says, of a video that can be played, why it is not the one that the
// task is about; empty where it is.
func olderVersionReason(s store.Status) string {
	switch s {
	case store.StatusCompleted:
		return ""
	case store.StatusDead, store.StatusCancelled:
		return "the new version was not published"
	}
	return "a new version is in progress"
}

func (u *UI) head(ctx context.Context, t store.Task, history []store.Attempt, pauses []store.Pause, running map[store.ID]store.Running, acts bool) (head, error) {
	h := head{row: u.row(t, running, pauses, acts), Request: printable(t.RequestID)}
	if p := string(t.Params); p != "{}" {
		h.Params = printable(p)
	}
	if name := readVideoDetails(history).Name; name != "" && t.Title() == "" {
		h.Title = name // that of a download is known once it is there
	}
	for by := t.OverriddenBy; !by.IsZero() && len(h.Over) < maxReplacements; {
		h.Over = append(h.Over, linkTo(by))
		next, err := u.o.Store.Get(ctx, by)
		if err != nil {
			return h, err
		}
		by = next.OverriddenBy
	}
	replaces, err := u.o.Store.Replaced(ctx, t.ID)
	if err != nil {
		return h, err
	}
	for _, id := range replaces {
		h.Replaces = append(h.Replaces, linkTo(id))
	}
	id := t.ID.String()
	if h.Replaced {
		return h, nil
	}
	h.CanRetry = acts && hasFailed(t)
	h.Again = acts
	h.Stop = acts && (t.Status == store.StatusPending || t.Status == store.StatusInProgress || t.Status == store.StatusFailed)
	if h.CanRetry {
		h.Commands = append(h.Commands, command("retry", id))
	}
	h.Commands = append(h.Commands, command("retry", id, "--from", u.layout.stages[0]))
	if h.Stop {
		h.Commands = append(h.Commands, command("cancel", id))
	}
	if c := replaceCommand(t); c != "" {
		h.Commands = append(h.Commands, c)
	}
	h.Commands = append(h.Commands, command("show", id))
	return h, nil
}

// attemptsShown is how many attempts a page has.
const maxAttempts = 50

// shownAttempts are the last attempts, the newest first.
func latestAttempts(history []store.Attempt, source string) []attempt {
	var out []attempt
	seen := make(map[string]bool)
	for _, a := range slices.Backward(history) {
		if len(out) == maxAttempts {
			break
		}
		a.Error = redact.Text(a.Error, source)
		failed := a.Outcome == "failed" || a.Outcome == "expired"
		out = append(out, attempt{
			Attempt: a, Took: formatDuration(a.FinishedAt.Sub(a.StartedAt)), Short: firstLine(a.Error),
			Failed: failed, Latest: !seen[a.Stage], Result: indentJSON(redact.JSON(a.Result, source)),
		})
		last := &out[len(out)-1]
		last.Attempt.Error = printable(strings.TrimSpace(a.Error))
		last.More = last.Attempt.Error != last.Short
		seen[a.Stage] = true
	}
	return out
}
