package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/store"
)

// What can be done with a video, a worker or a place. Each has what is asked before
// and the doing; those of dead letters are beside their page.

func askRetry(u *UI, r *http.Request) (question, error) {
	t, err := u.asked(r)
	return question{
		Title: "Retry from a stage", Button: "Retry", To: u.o.Base + "/videos/" + t.ID.String() + "/retry", From: u.layout.stages,
		Text: "The selected stage of “" + called(t) + "” and all stages after it run again. " +
			"Running attempts of these stages are cancelled. The published version stays until the new one is complete.",
		Command: command("retry", t.ID.String(), "--from", "STAGE"), Back: u.o.Base + "/videos/" + t.ID.String(),
	}, err
}

func doRetry(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	from := r.PostForm.Get("from")
	before, err := u.o.Store.Get(ctx, id)
	if err != nil {
		return "", err
	}
	if err := u.o.Actions.Retry(ctx, id, from); err != nil {
		return "", err
	}
	switch {
	case from != "":
		return "Retrying from " + from + ".", nil
	case !hasFailed(before):
		return "No stage has failed, so there is nothing to retry.", nil
	}
	return "Retrying the failed stages.", nil
}

// hasFailed reports whether there is something that a retry would do again.
func hasFailed(t store.Task) bool {
	return slices.ContainsFunc(t.Stages, func(s store.StageState) bool {
		return s.Status == store.StatusDead || s.Status == store.StatusFailed || s.Status == store.StatusCancelled
	})
}

func askCancel(u *UI, r *http.Request) (question, error) {
	t, err := u.asked(r)
	return question{
		Title: "Cancel", Button: "Cancel this video", Danger: true, To: u.o.Base + "/videos/" + t.ID.String() + "/cancel",
		Text: "Running attempts of “" + called(t) + "” are stopped and no new ones start. " +
			"Completed stages and the published version stay. You can retry the video later.",
		Command: command("cancel", t.ID.String()), Back: u.o.Base + "/videos/" + t.ID.String(),
	}, err
}

func doCancel(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	if err := u.o.Actions.Cancel(ctx, id); err != nil {
		return "", err
	}
	after, err := u.o.Store.Get(ctx, id) // it may have come to its end before
	if err != nil {
		return "", err
	}
	switch after.Status {
	case store.StatusCompleted:
		return "The video was completed before it could be cancelled.", nil
	case store.StatusDead:
		return "The video was already dead. There is no work to cancel.", nil
	}
	return "The video is cancelled.", nil
}

func askAdd(u *UI, r *http.Request) (question, error) {
	what, label := "Enter an http or https URL.", "URL"
	if u.can(u.o.Viewer(r.Context())).Operate {
		what, label = "Enter an http or https URL, or the path of a file on the workers’ host.", "URL or path"
	}
	if u.o.Uploads != "" {
		what += " To upload files from your computer, drop them on the board."
	}
	return question{
		Title: "Add a video", Button: "Add", To: u.o.Base + "/add", Source: label,
		Text:    what,
		Command: command("submit", "ADDRESS"), Back: u.o.Base + "/",
	}, nil
}

func doAdd(u *UI, ctx context.Context, r *http.Request) (string, error) {
	source, err := sourceOf(r)
	if err != nil {
		return "", err
	}
	_, err = u.o.Actions.Submit(ctx, store.Submission{Source: source})
	return "Added “" + title(source) + "”.", err
}

func sourceOf(r *http.Request) (string, error) {
	source := strings.TrimSpace(r.PostForm.Get("source"))
	if source == "" {
		return "", fmt.Errorf("%w: the source is empty", errForm)
	}
	return source, nil
}

func askOverride(u *UI, r *http.Request) (question, error) {
	t, err := u.asked(r)
	return question{
		Title: "Replace with another source", Button: "Replace", Danger: true, To: u.o.Base + "/videos/" + t.ID.String() + "/override", Source: "URL or path",
		Text: "A new video is created from this source, with the parameters and the priority of “" + called(t) + "”. " +
			"The old video is not processed again: its running attempts are stopped. Its published version stays available.",
		Command: replaceCommand(t), Back: u.o.Base + "/videos/" + t.ID.String(),
	}, err
}

// commandMost is how long parameters may be to be in a command, in bytes.
const commandMost = 1000

// replaceCommand replaces a task by one with the same parameters, if these are such
// that one sees what one copies.
func replaceCommand(t store.Task) string {
	if p := string(t.Params) + t.UserID; printable(p) != p || len(p) > commandMost {
		return ""
	}
	args := []string{"submit", "--replaces", t.ID.String()}
	if p := string(t.Params); p != "" && p != "{}" {
		args = append(args, "--params", p)
	}
	if t.Priority != 0 {
		args = append(args, fmt.Sprintf("--priority=%d", t.Priority))
	}
	if t.UserID != "" {
		args = append(args, "--user="+t.UserID)
	}
	return command(append(args, "ADDRESS")...)
}

func doOverride(u *UI, ctx context.Context, r *http.Request) (string, error) {
	source, err := sourceOf(r)
	if err != nil {
		return "", err
	}
	t, err := u.asked(r)
	if err != nil {
		return "", err
	}
	_, err = u.o.Actions.Override(ctx, t.ID, store.Submission{Source: source, Params: t.Params, Priority: t.Priority, UserID: t.UserID})
	return "Replaced with “" + title(source) + "”.", err
}

// askPause and those below concern a stage, a host, both or neither.
func askPause(u *UI, r *http.Request) (question, error) {
	q := placeOf(u, r, "pause")
	q.Title, q.Button, q.Danger = "Pause "+q.Title, "Pause", true
	q.Text = "Running attempts finish. Workers claim no new work here until you resume."
	return q, nil
}

func askResume(u *UI, r *http.Request) (question, error) {
	q := placeOf(u, r, "resume")
	q.Title, q.Button = "Resume "+q.Title, "Resume"
	q.Text = "Workers claim work here again."
	return q, nil
}

func placeOf(u *UI, r *http.Request, verb string) question {
	stage, host := r.FormValue("stage"), r.FormValue("host")
	args := []string{verb}
	if stage != "" {
		args = append(args, "--stage", stage)
	}
	if host != "" {
		args = append(args, "--host", host)
	}
	return question{
		Title: place(stage, host), To: u.o.Base + "/" + verb, Fields: []field{{"stage", stage}, {"host", host}},
		Command: command(args...), Back: u.o.Base + "/workers",
	}
}

// place names what is paused.
func place(stage, host string) string {
	what, where := "all stages", " on all hosts"
	if stage != "" {
		what = stage
	}
	if host != "" {
		where = " on " + host
	}
	return printable(what + where)
}

func doPause(u *UI, ctx context.Context, r *http.Request) (string, error) {
	stage, host := r.PostForm.Get("stage"), r.PostForm.Get("host")
	return "Paused: " + place(stage, host) + ".", u.o.Actions.Pause(ctx, store.Pause{Stage: stage, Host: host})
}

func doResume(u *UI, ctx context.Context, r *http.Request) (string, error) {
	stage, host := r.PostForm.Get("stage"), r.PostForm.Get("host")
	err := u.o.Actions.Resume(ctx, store.Pause{Stage: stage, Host: host})
	if errors.Is(err, store.ErrNotFound) { // somebody else was first
		return "Not paused: " + place(stage, host) + ".", nil
	}
	return "Resumed: " + place(stage, host) + ".", err
}

func askDrain(u *UI, r *http.Request) (question, error) {
	id, err := pathID(r)
	return question{
		Title: "Drain this worker", Button: "Drain", Danger: true, To: u.o.Base + "/workers/" + id.String() + "/drain",
		Text:    "The worker finishes its running attempts, claims no new work, and stops. A service manager may start it again.",
		Command: command("drain", id.String()), Back: u.o.Base + "/workers",
	}, err
}

func doDrain(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	return "The worker stops when its running attempts have finished.", u.o.Actions.DrainWorker(ctx, id)
}

// command is what does the same in a shell.
func command(args ...string) string {
	words := []string{"cuelight"}
	for _, a := range args {
		if strings.ContainsFunc(a, func(r rune) bool { return !strings.ContainsRune(plainWord, r) }) || a == "" {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

const plainWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,"
