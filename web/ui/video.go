package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/media/captions"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const (
	maxReplacements = 10 // that a page follows
	maxAttempts     = 50 // on a page
)

// videoHead is what concerns a video as a whole.
type videoHead struct {
	row
	Request     string
	Params      string
	Context     string     // indented JSON
	ReplacedBy  []store.ID // the replacement, its replacement, …
	Replaces    []store.ID
	CanRestart  bool // from any stage
	CanCancel   bool
	CanDelete   bool
	CanCaption  bool
	CanEdit     bool
	Description string
	Commands    []string
}

// shortID returns the end of an id.
func shortID(id store.ID) string {
	text := id.String()
	return "…" + text[len(text)-8:]
}

// attempt is an attempt as the page shows it.
type attempt struct {
	store.Attempt
	Duration, ErrorLine, Result string
	HasFailed                   bool
	IsLatest                    bool // of its stage or part
	HasDetails                  bool // the error has more than one line
}

func (u *UI) serveVideo(w http.ResponseWriter, r *http.Request) {
	id, err := pathID(r)
	if err != nil {
		u.fail(w, r, err)
		return
	}
	switch deleted, err := u.o.Store.GetDeleted(r.Context(), id); {
	case err == nil:
		u.renderDeleted(w, r, "This video is deleted", []store.DeletedTask{deleted}, "")
	case errors.Is(err, store.ErrNotFound):
		u.servePage(w, r, "video", "id="+id.String(), nil)
	default:
		u.fail(w, r, err)
	}
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
	c, err := u.current.Get(ctx, u.readCurrent)
	if err != nil {
		return screen{}, err
	}
	if c, err = u.withParts(ctx, c, t); err != nil {
		return screen{}, err
	}
	if c, err = u.withVideos(ctx, c, t); err != nil {
		return screen{}, err
	}
	details := readVideoDetails(history)
	details.addSettings(u.o.SettingsOf, t)
	details.add("Placement", strings.Join(report.Placements(t), "; "))
	details.Warnings = append(details.Warnings, report.PlacementWarnings(t, c.Workers)...)
	head, err := u.videoHead(ctx, t, c, details.Name, k.canOperate)
	if err != nil {
		return screen{}, err
	}
	isPublished := slices.ContainsFunc(history, func(a store.Attempt) bool {
		return a.Stage == "publish" && a.Outcome == "completed"
	})
	r := u.newRenderer()
	r.add("head", "", "head", head)
	r.add("stages", "", "stages", head)
	u.addPlayer(r, t, c.videos[t.ID], latestResult(history, "assemble").Chapters, len(details.Rows) > 0, isPublished)
	r.add("details", "", "details", details)
	now := time.Now().Truncate(time.Second)
	r.add("gantt", "", "gantt", u.layout.drawGantt(t, history, c, now))
	addPartStrips(r, partStrips(t, history, c, now))
	addAttempts(r, t, history)
	return r.screen(head.Title)
}

// withParts adds the parts of a task, and the progress of its divided stages.
func (u *UI) withParts(ctx context.Context, c current, t store.Task) (current, error) {
	if !slices.ContainsFunc(t.Stages, func(s store.StageState) bool { return s.Parts != nil }) {
		return c, nil
	}
	var err error
	if c.parts, err = u.o.Store.Parts(ctx, t.ID); err != nil {
		return c, err
	}
	return u.withProgress(ctx, c, t)
}

// addAttempts adds the last attempts. The completed attempts at the parts of a stage that has several are only counted.
func addAttempts(r *fragmentRenderer, t store.Task, history []store.Attempt) {
	completed := report.CompletedParts(history)
	for _, s := range t.Stages {
		if parts := completed[s.Name]; len(parts) > 0 {
			r.add("parts-of-"+s.Name, "attempts", "part-attempts", foldParts(t.ID, s.Name, parts, history))
		}
	}
	folded := 0
	for _, parts := range completed {
		folded += len(parts)
	}
	latest := latestAttempts(history, t.Source, func(a store.Attempt) bool {
		return a.Part > 0 && a.Outcome == "completed" && completed[a.Stage] != nil
	})
	for _, a := range latest {
		r.add("a-"+a.Token.String(), "attempts", "attempt", a)
	}
	if older := len(history) - folded - len(latest); older > 0 {
		r.add("older", "attempts", "older", map[string]any{"N": older, "Command": shellCommand("show", t.ID.String())})
	}
	if len(history) == 0 {
		r.add("no-attempts", "attempts", "no-attempts", nil)
	}
}

// addPlayer adds the player, or a placeholder once there is something to show in it.
func (u *UI) addPlayer(
	r *fragmentRenderer, t store.Task, v *playback.Video, chapters []captions.Chapter, hasDetails, isPublished bool,
) {
	if u.o.Playback == nil {
		return
	}
	if v == nil {
		r.add("player", "", "player", map[string]any{"IsEmpty": !hasDetails})
		return
	}
	who := "Anybody who has it can watch for a week"
	if v.ExpiresAt.IsZero() {
		who = "Anybody can watch while the video is public"
	}
	r.add("player", "", "player", map[string]any{
		"Video": v, "IsPublic": v.ExpiresAt.IsZero(), "Who": who, "Note": playerNote(t.Status, isPublished), "Chapters": chapters,
		"Link": u.publicAddress(v.Embed), "Code": embedCode(v, u.publicAddress(v.Embed), t.Title()),
	})
}

// publicAddress returns the address for viewers outside of this page; scripts complete one without a host.
func (u *UI) publicAddress(address string) string {
	if u.o.PublicURL == "" {
		return address
	}
	return u.o.PublicURL + strings.TrimPrefix(address, u.o.BasePath)
}

// embedCode returns the HTML of a frame with a player.
func embedCode(v *playback.Video, address, title string) string {
	width, height := 640, 360
	if v.Width > 0 {
		height = width * v.Height / v.Width
	}
	return fmt.Sprintf(`<iframe src="%s" width="%d" height="%d" style="border: 0" title="%s" `+
		`allow="autoplay; fullscreen; picture-in-picture" allowfullscreen></iframe>`,
		html.EscapeString(address), width, height, html.EscapeString(cmp.Or(title, "Video")))
}

// playerNote says why the published version of a task is not the final one; empty if it is. Before the publish stage was
// ever completed, it is the one that was published early.
func playerNote(s store.Status, isPublished bool) string {
	ended := s == store.StatusDead || s == store.StatusCancelled
	switch {
	case s == store.StatusCompleted:
		return ""
	case isPublished && ended:
		return "This is the previously published version: the new version was not published."
	case isPublished:
		return "This is the previously published version: a new version is in progress."
	case ended:
		return "This version was published early: the other renditions were not made."
	}
	return "This version was published early: the other renditions are in progress."
}

func (u *UI) videoHead(
	ctx context.Context, t store.Task, c current, foundName string, canOperate bool) (videoHead, error) {
	h := videoHead{row: u.row(t, c, canOperate), Request: printable(t.RequestID)}
	if p := string(t.Params); p != "{}" {
		h.Params = printable(p)
	}
	h.Context = indentJSON(t.UserContext)
	if foundName != "" && t.Title() == "" {
		h.Title = foundName // a download's name is known after the ingest
	}
	if err := u.readReplacements(ctx, t, &h); err != nil {
		return h, err
	}
	h.CanDelete = canOperate
	h.CanEdit = canOperate && u.o.Playback != nil
	if p, err := video.ParseParams(t.Params); err == nil { // otherwise, ingest says what is wrong
		h.Description = printable(p.Description)
	}
	if h.IsReplaced {
		return h, nil
	}
	h.CanRetry = canOperate && hasFailed(t)
	h.CanRestart, h.CanCaption = canOperate, canOperate && u.o.Captions != nil
	switch t.Status {
	case store.StatusPending, store.StatusInProgress, store.StatusFailed:
		h.CanCancel = canOperate
	}
	if h.CanRetry {
		h.Commands = append(h.Commands, shellCommand("retry", h.ID))
	}
	h.Commands = append(h.Commands, shellCommand("retry", h.ID, "--from", u.layout.stages[0]))
	if h.CanCancel {
		h.Commands = append(h.Commands, shellCommand("cancel", h.ID))
	}
	if c := overrideCommand(t); c != "" {
		h.Commands = append(h.Commands, c)
	}
	h.Commands = append(h.Commands, shellCommand("show", h.ID))
	return h, nil
}

// readReplacements reads the tasks that a task replaces and those that replace it.
func (u *UI) readReplacements(ctx context.Context, t store.Task, h *videoHead) error {
	for by := t.OverriddenBy; !by.IsZero() && len(h.ReplacedBy) < maxReplacements; {
		h.ReplacedBy = append(h.ReplacedBy, by)
		next, err := u.o.Store.Get(ctx, by)
		if err != nil {
			return err
		}
		by = next.OverriddenBy
	}
	var err error
	h.Replaces, err = u.o.Store.OverriddenBy(ctx, t.ID)
	return err
}

// latestAttempts returns the last attempts that are not folded, the newest first.
func latestAttempts(history []store.Attempt, source string, isFolded func(store.Attempt) bool) (latest []attempt) {
	type subject struct {
		stage string
		part  int
	}
	seen := make(map[subject]bool)
	for _, a := range slices.Backward(history) {
		if len(latest) == maxAttempts {
			break
		}
		of := subject{a.Stage, a.Part}
		isLatest := !seen[of]
		if seen[of] = true; isFolded(a) {
			continue
		}
		text := redact.Text(a.Error, source)
		a.Error = printable(strings.TrimSpace(text))
		line := firstLine(text)
		latest = append(latest, attempt{
			Attempt: a, Duration: formatDuration(a.FinishedAt.Sub(a.StartedAt)),
			ErrorLine: line, HasDetails: a.Error != line, Result: indentJSON(redact.JSON(a.Result, source)),
			HasFailed: a.Outcome == "failed" || a.Outcome == "expired", IsLatest: isLatest,
		})
	}
	return latest
}
