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

func confirmRetry(u *UI, r *http.Request) (confirmation, error) {
	t, err := u.taskOf(r)
	return confirmation{
		Title: "Retry from a stage", Button: "Retry", To: u.o.Base + "/videos/" + t.ID.String() + "/retry", From: u.layout.stages,
		Text: "The selected stage of “" + videoTitle(t) + "” and all stages after it run again. " +
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

func confirmCancel(u *UI, r *http.Request) (confirmation, error) {
	t, err := u.taskOf(r)
	return confirmation{
		Title: "Cancel", Button: "Cancel this video", Danger: true, To: u.o.Base + "/videos/" + t.ID.String() + "/cancel",
		Text: "Running attempts of “" + videoTitle(t) + "” are stopped and no new ones start. " +
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

func confirmAdd(u *UI, r *http.Request) (confirmation, error) {
	what, label := "Enter an http or https URL.", "URL"
	if u.permissions(u.o.Viewer(r.Context())).Operate {
		what, label = "Enter an http or https URL, or the path of a file on the workers’ host.", "URL or path"
	}
	if u.o.Uploads != "" {
		what += " To upload files from your computer, drop them on the board."
	}
	return confirmation{
		Title: "Add a video", Button: "Add", To: u.o.Base + "/add", Source: label,
		Text:    what,
		Command: command("submit", "ADDRESS"), Back: u.o.Base + "/",
	}, nil
}

func doAdd(u *UI, ctx context.Context, r *http.Request) (string, error) {
	source, err := formSource(r)
	if err != nil {
		return "", err
	}
	_, err = u.o.Actions.Submit(ctx, store.Submission{Source: source})
	return "Added “" + sourceName(source) + "”.", err
}

func formSource(r *http.Request) (string, error) {
	source := strings.TrimSpace(r.PostForm.Get("source"))
	if source == "" {
		return "", fmt.Errorf("%w: the source is empty", errIncomplete)
	}
	return source, nil
}

func confirmOverride(u *UI, r *http.Request) (confirmation, error) {
	t, err := u.taskOf(r)
	return confirmation{
		Title: "Replace with another source", Button: "Replace", Danger: true, To: u.o.Base + "/videos/" + t.ID.String() + "/override", Source: "URL or path",
		Text: "A new video is created from this source, with the parameters and the priority of “" + videoTitle(t) + "”. " +
			"The old video is not processed again: its running attempts are stopped. Its published version stays available.",
		Command: replaceCommand(t), Back: u.o.Base + "/videos/" + t.ID.String(),
	}, err
}

// commandMost is how long parameters may be to be in a command, in bytes.
const maxCommand = 1000

// replaceCommand replaces a task by one with the same parameters, if these are such
// that one sees what one copies.
func replaceCommand(t store.Task) string {
	if p := string(t.Params) + t.UserID; printable(p) != p || len(p) > maxCommand {
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
	source, err := formSource(r)
	if err != nil {
		return "", err
	}
	t, err := u.taskOf(r)
	if err != nil {
		return "", err
	}
	_, err = u.o.Actions.Override(ctx, t.ID, store.Submission{Source: source, Params: t.Params, Priority: t.Priority, UserID: t.UserID})
	return "Replaced with “" + sourceName(source) + "”.", err
}

// askPause and those below concern a stage, a host, both or neither.
func confirmPause(u *UI, r *http.Request) (confirmation, error) {
	q := pauseConfirmation(u, r, "pause")
	q.Title, q.Button, q.Danger = "Pause "+q.Title, "Pause", true
	q.Text = "Running attempts finish. Workers claim no new work here until you resume."
	return q, nil
}

func confirmResume(u *UI, r *http.Request) (confirmation, error) {
	q := pauseConfirmation(u, r, "resume")
	q.Title, q.Button = "Resume "+q.Title, "Resume"
	q.Text = "Workers claim work here again."
	return q, nil
}

func pauseConfirmation(u *UI, r *http.Request, verb string) confirmation {
	stage, host := r.FormValue("stage"), r.FormValue("host")
	args := []string{verb}
	if stage != "" {
		args = append(args, "--stage", stage)
	}
	if host != "" {
		args = append(args, "--host", host)
	}
	return confirmation{
		Title: pauseTarget(stage, host), To: u.o.Base + "/" + verb, Fields: []field{{"stage", stage}, {"host", host}},
		Command: command(args...), Back: u.o.Base + "/workers",
	}
}

// place names what is paused.
func pauseTarget(stage, host string) string {
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
	return "Paused: " + pauseTarget(stage, host) + ".", u.o.Actions.Pause(ctx, store.Pause{Stage: stage, Host: host})
}

func doResume(u *UI, ctx context.Context, r *http.Request) (string, error) {
	stage, host := r.PostForm.Get("stage"), r.PostForm.Get("host")
	err := u.o.Actions.Resume(ctx, store.Pause{Stage: stage, Host: host})
	if errors.Is(err, store.ErrNotFound) { // somebody else was first
		return "Not paused: " + pauseTarget(stage, host) + ".", nil
	}
	return "Resumed: " + pauseTarget(stage, host) + ".", err
}

func confirmDrain(u *UI, r *http.Request) (confirmation, error) {
	id, err := pathID(r)
	return confirmation{
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
		if strings.ContainsFunc(a, func(r rune) bool { return !strings.ContainsRune(shellSafe, r) }) || a == "" {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

const shellSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,"
