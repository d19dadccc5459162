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
		Title: "Do it again", Button: "Do it again", To: u.o.Base + "/videos/" + t.ID.String() + "/retry", From: u.layout.stages,
		Text: "“" + called(t) + "” is done again from the stage you choose, and everything after it. " +
			"Whoever is busy with one of these is told to stop. What is published stays until the new version is complete.",
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
		return "It is done again from " + from + " on.", nil
	case !hasFailed(before):
		return "Nothing of it has failed, so there is nothing to try again.", nil
	}
	return "What failed is tried again.", nil
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
		Text: "“" + called(t) + "” is not worked on any more, and what is running is stopped. " +
			"What is completed and published stays. It can be taken up again.",
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
		return "It was done before it could be cancelled.", nil
	case store.StatusDead:
		return "It was dead already: nothing is worked on that could be cancelled.", nil
	}
	return "It is cancelled.", nil
}

func askAdd(u *UI, r *http.Request) (question, error) {
	what, label := "An http or https address.", "Address"
	if u.can(u.o.Viewer(r.Context())).Operate {
		what, label = "An http or https address, or the path of a file as the workers see it.", "Address or path"
	}
	if u.o.Uploads != "" {
		what += " Files of your own can be dropped anywhere on the board."
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
	return "“" + title(source) + "” was added.", err
}

func sourceOf(r *http.Request) (string, error) {
	source := strings.TrimSpace(r.PostForm.Get("source"))
	if source == "" {
		return "", fmt.Errorf("%w: no address", errForm)
	}
	return source, nil
}

func askOverride(u *UI, r *http.Request) (question, error) {
	t, err := u.asked(r)
	return question{
		Title: "Replace by another source", Button: "Replace", Danger: true, To: u.o.Base + "/videos/" + t.ID.String() + "/override", Source: "Address or path",
		Text: "A new video is made of the source that you name, with the parameters and the priority of “" + called(t) + "”. " +
			"This one is then never worked on again; what is running of it is stopped, and what it has published stays where it is.",
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
	return "It is replaced by “" + title(source) + "”.", err
}

// askPause and those below concern a stage, a host, both or neither.
func askPause(u *UI, r *http.Request) (question, error) {
	q := placeOf(u, r, "pause")
	q.Title, q.Button, q.Danger = "Pause "+q.Title, "Pause", true
	q.Text = "What is running is finished. Nothing new is begun until this is resumed."
	return q, nil
}

func askResume(u *UI, r *http.Request) (question, error) {
	q := placeOf(u, r, "resume")
	q.Title, q.Button = "Resume "+q.Title, "Resume"
	q.Text = "Work goes on with what waits."
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
		return "Not paused any more: " + place(stage, host) + ".", nil
	}
	return "Resumed: " + place(stage, host) + ".", err
}

func askDrain(u *UI, r *http.Request) (question, error) {
	id, err := pathID(r)
	return question{
		Title: "Drain this worker", Button: "Drain", Danger: true, To: u.o.Base + "/workers/" + id.String() + "/drain",
		Text:    "It finishes what it is working on, takes nothing new, and ends. What starts it may start it again.",
		Command: command("drain", id.String()), Back: u.o.Base + "/workers",
	}, err
}

func doDrain(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	return "It ends as soon as its work is done.", u.o.Actions.DrainWorker(ctx, id)
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
