package ui

import (
	"context"
	"errors"
	"net/http"

	"github.com/cuelight/cuelight/store"
)

func confirmPause(u *UI, r *http.Request) (confirmation, error) {
	c := pauseConfirmation(u, r, "pause")
	c.Title, c.Button, c.IsDanger = "Pause "+c.Title, "Pause", true
	c.Text = "Running attempts finish. Workers claim no new work here until you resume."
	return c, nil
}

func confirmResume(u *UI, r *http.Request) (confirmation, error) {
	c := pauseConfirmation(u, r, "resume")
	c.Title, c.Button = "Resume "+c.Title, "Resume"
	c.Text = "Workers claim work here again."
	return c, nil
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
		Title: pauseTarget(stage, host), Action: u.o.BasePath + "/" + verb, Command: shellCommand(args...),
		Fields: []field{{"stage", stage}, {"host", host}}, Back: u.o.BasePath + "/workers",
	}
}

// pauseTarget names what a pause applies to.
func pauseTarget(stage, host string) string {
	stages, hosts := "all stages", " on all hosts"
	if stage != "" {
		stages = stage
	}
	if host != "" {
		hosts = " on " + host
	}
	return printable(stages + hosts)
}

func doPause(u *UI, ctx context.Context, r *http.Request) (string, error) {
	stage, host := r.PostForm.Get("stage"), r.PostForm.Get("host")
	return "Paused: " + pauseTarget(stage, host) + ".", u.o.Actions.Pause(ctx, store.Pause{Stage: stage, Host: host})
}

func doResume(u *UI, ctx context.Context, r *http.Request) (string, error) {
	stage, host := r.PostForm.Get("stage"), r.PostForm.Get("host")
	err := u.o.Actions.Resume(ctx, store.Pause{Stage: stage, Host: host})
	if errors.Is(err, store.ErrNotFound) { // another operator resumed it
		return "Not paused: " + pauseTarget(stage, host) + ".", nil
	}
	return "Resumed: " + pauseTarget(stage, host) + ".", err
}

func confirmDrain(u *UI, r *http.Request) (confirmation, error) {
	id, err := pathID(r)
	return confirmation{
		Title: "Drain this worker", Button: "Drain", IsDanger: true,
		Action: u.o.BasePath + "/workers/" + id.String() + "/drain",
		Text: "The worker finishes its running attempts, claims no new work, and stops. " +
			"A service manager may start it again.",
		Command: shellCommand("drain", id.String()), Back: u.o.BasePath + "/workers",
	}, err
}

func doDrain(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	return "The worker stops when its running attempts have finished.", u.o.Actions.DrainWorker(ctx, id)
}
