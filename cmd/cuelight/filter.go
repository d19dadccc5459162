package main

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// statuses are the statuses of a stage. A task as a whole can be scheduled as well.
var statuses = []string{
	string(store.StatusPending), string(store.StatusInProgress), string(store.StatusCompleted),
	string(store.StatusFailed), string(store.StatusDead), string(store.StatusCancelled),
}

var taskStatuses = append([]string{string(store.StatusScheduled)}, statuses...)

// filterFlags are the flags that select tasks.
type filterFlags struct {
	status, stage, user, request, source, error string
}

// given returns the flags that were given, for the audit log.
func (f *filterFlags) given() map[string]string {
	given := map[string]string{}
	for name, value := range map[string]string{
		"status": f.status, "stage": f.stage, "user": f.user, "request_id": f.request,
		"source": redact.Filter(f.source), "error": f.error,
	} {
		if value != "" {
			given[name] = value
		}
	}
	return given
}

func addFilterFlags(cmd *cobra.Command) *filterFlags {
	f := &filterFlags{}
	flags := cmd.Flags()
	flags.StringVar(&f.status, "status", "", "only tasks with this status: "+strings.Join(taskStatuses, ", "))
	flags.StringVar(&f.stage, "stage", "", "only tasks whose stage has a status: STAGE=STATUS")
	flags.StringVar(&f.user, "user", "", "only tasks of this user")
	flags.StringVar(&f.request, "request-id", "", "only the task with this request id")
	flags.StringVar(&f.source, "source", "", "only tasks whose source contains this")
	flags.StringVar(&f.error, "error", "", "only tasks with an error that contains this")
	complete := func(words []string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	}
	var pairs []string
	for _, stage := range store.Video().Stages() {
		for _, status := range statuses {
			pairs = append(pairs, stage+"="+status)
		}
	}
	// They only fail for flags that do not exist.
	_ = cmd.RegisterFlagCompletionFunc("status", complete(taskStatuses))
	_ = cmd.RegisterFlagCompletionFunc("stage", complete(pairs))
	return f
}

func (f *filterFlags) filter() (store.Filter, error) {
	out := store.Filter{
		UserID: f.user, RequestID: f.request, Source: f.source, Error: f.error, Status: store.Status(f.status),
	}
	if f.status != "" && !slices.Contains(taskStatuses, f.status) {
		return out, usererr.Usagef("--status %s: it must be one of %s",
			usererr.Printable(f.status), strings.Join(taskStatuses, ", "))
	}
	if f.stage == "" {
		return out, nil
	}
	stage, status, ok := strings.Cut(f.stage, "=")
	if !ok || !slices.Contains(statuses, status) {
		return out, usererr.Usagef("--stage %s: it must be STAGE=STATUS, where STATUS is one of %s",
			usererr.Printable(f.stage), strings.Join(statuses, ", "))
	}
	if err := checkStage(stage); err != nil {
		return out, err
	}
	out.Stage, out.StageStatus = stage, store.Status(status)
	return out, nil
}

func checkStage(name string) error {
	graph := store.Video()
	if _, ok := graph.Stage(name); !ok {
		return usererr.Usagef("unknown stage %s; allowed: %s", usererr.Printable(name), strings.Join(graph.Stages(), ", "))
	}
	return nil
}

// completeStages completes the values of a flag with the names of the stages.
func completeStages(cmd *cobra.Command, flag string) {
	// It only fails for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(store.Video().Stages(), cobra.ShellCompDirectiveNoFileComp))
}

// eachTask calls do for the task that each word names.
func (c *cli) eachTask(ctx context.Context, st *store.Store, words []string, do func(store.ID) error) error {
	return c.each(ctx, words, func(word string) error {
		id, err := st.Find(ctx, strings.ToLower(word))
		if err == nil {
			err = do(id)
		}
		return err
	})
}

// each calls do for every word, and continues after an error about a word.
func (c *cli) each(ctx context.Context, words []string, do func(word string) error) error {
	failed, last := 0, error(nil)
	for _, word := range words {
		err := do(word)
		if err == nil {
			continue
		}
		p := dbconn.Explain(err)
		if p.Kind == usererr.Unreachable || ctx.Err() != nil || isBrokenPipe(err) || len(words) == 1 {
			return err
		}
		failed, last = failed+1, p
		c.finish(&usererr.Error{Kind: p.Kind, Text: usererr.Printable(word) + ": " + p.Text})
	}
	switch {
	case failed == 0:
		return nil
	case failed < len(words):
		return exitStatus(exitPartial)
	}
	return exitStatus(exitCodeOf[dbconn.Explain(last).Kind])
}

// idTail matches the end of an id that [store.Store.Find] accepts. Shorter words, such as
// that of a shell variable that is not set, match no id.
var idTail = regexp.MustCompile(`^[0-9a-f-]{4,36}$`)

// idEndsIn reports whether a word is an id or the end of it.
func idEndsIn(id store.ID, word string) bool {
	word = strings.ToLower(word)
	return idTail.MatchString(word) && strings.HasSuffix(id.String(), word)
}
