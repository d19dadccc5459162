package ui

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/store"
)

// confirmVideo fills what the confirmations of a video's actions have in common.
func (u *UI) confirmVideo(r *http.Request, action string, c confirmation) (confirmation, store.Task, error) {
	t, err := u.taskOf(r)
	c.Back = u.o.BasePath + "/videos/" + t.ID.String()
	c.Action = c.Back + "/" + action
	c.Text = fmt.Sprintf(c.Text, "“"+videoTitle(t)+"”")
	return c, t, err
}

func confirmRetry(u *UI, r *http.Request) (confirmation, error) {
	c, t, err := u.confirmVideo(r, "retry", confirmation{
		Title: "Retry from a stage", Button: "Retry", Stages: u.layout.stages,
		Text: "The selected stage of %s and all stages after it run again. Running attempts of these stages are " +
			"cancelled. The published version stays until the new one is complete.",
	})
	c.Command = shellCommand("retry", t.ID.String(), "--from", "STAGE")
	if len(u.layout.divided) > 0 {
		c.Fresh = "Also do completed parts of " + strings.Join(u.layout.divided, " and ") + " again"
	}
	if u.o.RenditionsOf != nil && err == nil {
		c.Renditions, err = u.o.RenditionsOf(r.Context(), t.ID)
	}
	return c, err
}

func doRetry(u *UI, ctx context.Context, r *http.Request) (string, error) {
	before, err := u.taskOf(r)
	if err != nil {
		return "", err
	}
	o := ops.RetryOptions{From: r.PostForm.Get("from"), Fresh: r.PostForm.Has("fresh")}
	for _, text := range r.PostForm["rendition"] {
		height, err := strconv.Atoi(text)
		if err != nil {
			return "", fmt.Errorf("%w: %q is not a height", errIncomplete, truncate(text))
		}
		o.Renditions, o.From = append(o.Renditions, height), ""
	}
	if err := u.o.Actions.Retry(ctx, before.ID, o); err != nil {
		return "", err
	}
	switch {
	case len(o.Renditions) > 0:
		return "Making " + count(len(o.Renditions), "rendition") + " again.", nil
	case o.From != "":
		return "Retrying from " + o.From + ".", nil
	case !hasFailed(before):
		return "No stage has failed, so there is nothing to retry.", nil
	}
	return "Retrying the failed stages.", nil
}

// hasFailed reports whether a retry without a stage has something to do.
func hasFailed(t store.Task) bool {
	return slices.ContainsFunc(t.Stages, func(s store.StageState) bool {
		return s.Status == store.StatusDead || s.Status == store.StatusFailed || s.Status == store.StatusCancelled
	})
}

func confirmCancel(u *UI, r *http.Request) (confirmation, error) {
	c, t, err := u.confirmVideo(r, "cancel", confirmation{
		Title: "Cancel", Button: "Cancel this video", IsDanger: true,
		Text: "Running attempts of %s are stopped and no new ones start. Completed stages and the published version " +
			"stay. You can retry the video later.",
	})
	c.Command = shellCommand("cancel", t.ID.String())
	return c, err
}

func doCancel(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	if err := u.o.Actions.Cancel(ctx, id); err != nil {
		return "", err
	}
	after, err := u.o.Store.Get(ctx, id) // it may have ended before
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
	text, label := "Enter an http or https URL.", "URL"
	if u.o.Viewer(r.Context()).Operate {
		text, label = "Enter an http or https URL, or the path of a file on the workers’ host.", "URL or path"
	}
	if u.o.Uploads != "" {
		text += " To upload files from your computer, drop them on the board."
	}
	return confirmation{
		Title: "Add a video", Button: "Add", Action: u.o.BasePath + "/add", SourceLabel: label, Text: text,
		Command: shellCommand("submit", "SOURCE"), Back: u.o.BasePath + "/", Choice: u.profileChoice(r),
	}, nil
}

func doAdd(u *UI, ctx context.Context, r *http.Request) (string, error) {
	source, err := formSource(r)
	if err != nil {
		return "", err
	}
	params, err := profileParams(r.PostForm.Get("profile"))
	if err != nil {
		return "", err
	}
	_, err = u.o.Actions.Submit(ctx, store.Submission{Source: source, Params: params})
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
	c, t, err := u.confirmVideo(r, "override", confirmation{
		Title: "Replace with another source", Button: "Replace", IsDanger: true, SourceLabel: "URL or path",
		Text: "A new video is created from this source, with the parameters, the context and the priority of %s. The old video is " +
			"not processed again: its running attempts are stopped. Its published version stays available.",
	})
	c.Command = overrideCommand(t)
	return c, err
}

// maxCommand is the maximum length of parameters in a shell command, in bytes.
const maxCommand = 1000

// overrideCommand returns the command that replaces a task by one with the same
// parameters. It returns "" if they are long or hold invisible characters.
func overrideCommand(t store.Task) string {
	if p := string(t.Params) + t.UserID + string(t.UserContext); printable(p) != p || len(p) > maxCommand {
		return ""
	}
	args := []string{"submit", "--replaces", t.ID.String()}
	if p := string(t.Params); p != "" && p != "{}" {
		args = append(args, "--params", p)
	}
	if t.Priority != 0 {
		args = append(args, fmt.Sprintf("--priority=%d", t.Priority))
	}
	if p, ok := t.Placements()["transcode"]; ok {
		for _, label := range p.Requires {
			args = append(args, "--requires="+label)
		}
		for _, label := range p.Prefers {
			args = append(args, "--prefers="+label)
		}
		if p.Wait > 0 {
			args = append(args, "--prefer-wait="+p.Wait.String())
		}
	}
	if t.UserID != "" {
		args = append(args, "--user="+t.UserID)
	}
	if len(t.UserContext) > 0 {
		args = append(args, "--context", string(t.UserContext))
	}
	return shellCommand(append(args, "SOURCE")...)
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
	_, err = u.o.Actions.Override(ctx, []store.ID{t.ID}, store.Submission{
		Source: source, Params: t.Params, Priority: t.Priority, UserID: t.UserID, Placement: t.Placements(),
		UserContext: t.UserContext,
	})
	return "Replaced with “" + sourceName(source) + "”.", err
}
