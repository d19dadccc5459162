package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// retryTime limits a retry of many videos, so that the viewer gets an answer. The
// message counts the rest.
const retryTime = 15 * time.Second

// retrySelection reads which dead tasks to retry: the selected ones, or all that match
// the filter. The fields repeat the selection in the form.
func retrySelection(v url.Values) (f report.DeadFilter, fields []field, err error) {
	if ids := v["task"]; len(ids) > 0 && !v.Has("all") {
		for _, text := range ids {
			id, err := store.ParseID(text)
			if err != nil {
				return f, nil, fmt.Errorf("%w: %w", errIncomplete, err)
			}
			f.Tasks = append(f.Tasks, id)
			fields = append(fields, field{"task", id.String()})
		}
		return f, fields, nil
	}
	if v.Has("selected") {
		return f, nil, nil
	}
	q := readDeadQuery(v).firstPage()
	for name := range q.Values {
		fields = append(fields, field{name, q.Get(name)})
	}
	return q.deadFilter(), append(fields, field{"all", "1"}), nil
}

func confirmRetryDead(u *UI, r *http.Request) (confirmation, error) {
	v := r.URL.Query()
	f, fields, err := retrySelection(v)
	if err != nil {
		return confirmation{}, err
	}
	c := confirmation{Title: "Retry", Action: u.o.BasePath + "/dead/retry", Fields: fields}
	if f.Tasks == nil && v.Has("selected") {
		c.Text = "No videos are selected. Select some first, or retry a whole group."
		return c, nil
	}
	n, more, err := u.o.Store.CountDead(r.Context(), f)
	if err != nil {
		return c, err
	}
	switch {
	case more:
		c.Button = "Retry all"
		c.Text = "You are about to retry " + describeSelection(f) + ": " + count(n, "video") + " of the newest " +
			formatInt(report.MaxDead) + " dead tasks, and all matching older ones. Attempts are counted from one again."
	case n == 0:
		c.Text = "None of these videos is dead now."
		return c, nil
	default:
		c.Button = "Retry " + count(n, "video")
		c.Text = "You are about to retry exactly " + count(n, "video") + ": " + describeSelection(f) +
			". Attempts are counted from one again."
	}
	c.Command = retryDeadCommand(f)
	return c, nil
}

func describeSelection(f report.DeadFilter) string {
	if f.Tasks != nil {
		return "your selection"
	}
	var words []string
	if f.Stage != "" {
		words = append(words, " in stage "+printable(f.Stage))
	}
	if f.Group != "" {
		words = append(words, " of this group")
	}
	if f.Source != "" {
		words = append(words, " with “"+printable(f.Source)+"” in the source")
	}
	if f.Error != "" {
		words = append(words, " with “"+printable(f.Error)+"” in the error")
	}
	return "all dead videos" + strings.Join(words, ",") + ", on all pages"
}

// retryDeadCommand returns the shell command for a selection. It returns "" where the
// command has no such filter: it searches the errors of all attempts.
func retryDeadCommand(f report.DeadFilter) string {
	args := []string{"retry"}
	switch {
	case f.Group != "", f.Error != "", len(f.Tasks) > 5:
		return ""
	case f.Tasks != nil:
		for _, id := range f.Tasks {
			args = append(args, id.String())
		}
		return shellCommand(args...)
	}
	args = append(args, "--all")
	if f.Stage != "" {
		args = append(args, "--stage", f.Stage+"=dead")
	}
	if f.Source != "" {
		args = append(args, "--source", f.Source)
	}
	return shellCommand(args...)
}

func doRetryDead(u *UI, ctx context.Context, r *http.Request) (string, error) {
	f, _, err := retrySelection(r.PostForm)
	if err != nil {
		return "", err
	}
	if f.Tasks == nil && !r.PostForm.Has("all") {
		return "", fmt.Errorf("%w: no videos are selected", errIncomplete)
	}
	result, err := u.o.Actions.RetryDead(ctx, f, store.RetryAllOptions{Until: time.Now().Add(retryTime)})
	if err != nil {
		return "", err
	}
	text := "Retrying " + count(result.Retried, "video") + "."
	if result.Remaining > 0 {
		text += " Time ran out for " + count(result.Remaining, "more video") + ": retry again for the rest."
	}
	return text, nil
}
