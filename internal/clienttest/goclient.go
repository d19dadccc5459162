//go:build ignore

// Command client uses the generated client as a user's program would. It fails if a response
// of the server does not fit the types, and prints the id of the task.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/cuelight/cuelight/internal/clienttest/golang/api"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, key, source string) error {
	client, err := api.NewClientWithResponses(url, api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	}))
	if err != nil {
		return err
	}
	id, err := submit(ctx, client, source)
	if err != nil {
		return err
	}
	listed, err := client.ListTasksWithResponse(ctx, &api.ListTasksParams{Source: &source})
	if err != nil || listed.JSON200 == nil {
		return fmt.Errorf("list: %v, %s", err, listed.Body)
	}
	if !slices.ContainsFunc(listed.JSON200.Tasks, func(t api.Task) bool { return t.TaskId == id }) {
		return fmt.Errorf("the task is not listed: %s", listed.Body)
	}
	shown, err := client.GetTaskWithResponse(ctx, id)
	if err != nil || shown.JSON200 == nil || shown.JSON200.Params["title"] != "A title" ||
		shown.JSON200.Stages[0].Stage != "ingest" {
		return fmt.Errorf("show: %v, %s", err, shown.Body)
	}
	if err := events(ctx, client); err != nil {
		return err
	}
	fmt.Println(id)
	return nil
}

func submit(ctx context.Context, client *api.ClientWithResponses, source string) (id api.ID, err error) {
	var body api.SubmitTasksJSONRequestBody
	title, custom := "A title", map[string]any{"tags": []string{"a", "b"}}
	params := api.Params{Title: &title, Custom: &custom}
	if err := body.FromSubmission(api.Submission{Source: source, Params: &params}); err != nil {
		return id, err
	}
	got, err := client.SubmitTasksWithResponse(ctx, &api.SubmitTasksParams{}, body)
	if err != nil || got.JSON201 == nil {
		return id, fmt.Errorf("submit: %v, %s", err, got.Body)
	}
	receipt, err := got.JSON201.AsReceipt()
	return receipt.TaskId, err
}

func events(ctx context.Context, client *api.ClientWithResponses) error {
	after := int64(0)
	got, err := client.ListEventsWithResponse(ctx, &api.ListEventsParams{After: &after})
	if err != nil || got.JSON200 == nil {
		return fmt.Errorf("events: %v, %s", err, got.Body)
	}
	for _, e := range got.JSON200.Events {
		if e.Data != nil && (*e.Data)["host"] == "studio" {
			return nil
		}
	}
	return fmt.Errorf("the data of an event was lost: %s", got.Body)
}
