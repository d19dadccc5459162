package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// A script can read tasks from the command line and from the API in the same way.
func TestListJSON_HasTheSameTasksAsTheAPI(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.run(0, "pause")
	id := decode[struct {
		Task store.ID `json:"task_id"`
	}](p.run(0, "submit", "--json", "--user", "ann", "--context", `{"order": 17}`, "clip.mp4"))[0].Task
	r := p.start("serve", "--listen", "127.0.0.1:0")
	s := p.site(r)
	var api map[string]any
	reply := s.do(http.StatusOK, http.MethodGet, fmt.Sprintf("api/v1/tasks/%s", id), nil)
	if err := json.Unmarshal(reply, &api); err != nil {
		t.Fatal(err)
	}
	listed := decode[map[string]any](p.run(0, "list", "--json"))[0]
	shown := decode[map[string]any](p.run(0, "show", "--json", id.String()))[0]
	if stages, ok := listed["stages"].([]any); !ok || len(stages) != 5 {
		t.Errorf("list has the stages %v", listed["stages"])
	}
	if !reflect.DeepEqual(listed["user_context"], map[string]any{"order": 17.0}) {
		t.Errorf("list has the context %v", listed["user_context"])
	}
	for name, want := range listed {
		if !reflect.DeepEqual(api[name], want) {
			t.Errorf("%s is %v in the API, %v in the list", name, api[name], want)
		}
		if !reflect.DeepEqual(shown[name], want) {
			t.Errorf("%s is %v as it is shown, %v in the list", name, shown[name], want)
		}
	}
	r.signal(syscall.SIGTERM)
	r.end(0)
}

func TestSubmit_ReadsTheContextFromAFile(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.run(0, "pause")
	if err := os.WriteFile(filepath.Join(p.dir, "context.json"), []byte("{\n  \"order\": \"<17>\"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(0, "submit", "--context", "@context.json", "clip.mp4")
	id := p.list()[0].TaskID.String()
	if shown := p.run(0, "show", id).stdout.String(); !strings.Contains(shown, `context    {"order":"<17>"}`) {
		t.Errorf("show prints\n%s", shown)
	}
	for given, want := range map[string]string{
		"@missing.json": "--context: cannot read missing.json: no such file",
		"[]":            "the user context is not a JSON object", "{": "the user context is not JSON",
	} {
		if got := p.run(2, "submit", "--context", given, "clip.mp4").stderr(); !strings.Contains(got, want) {
			t.Errorf("--context %s printed\n%s", given, got)
		}
	}
}

func TestShow_PrintsWarnings(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	c := &cli{out: console.NewStream(&b, nil)}
	c.writeHead(&b, shownTask{TaskDetails: report.TaskDetails{
		Warnings: []string{"the source is damaged: about 2.0 s of the picture are missing, some 50 frames"},
	}})
	if !strings.Contains(b.String(), "\nwarning    the source is damaged: about 2.0 s") {
		t.Errorf("shown: %s", b.String())
	}
}

func TestSubmit_ShowsThePlacementOfATask(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.run(0, "submit", "clip.mp4", "--requires", "gpu", "--prefers", "h264_nvenc", "--prefer-wait", "5m")
	task := decode[store.Task](p.run(0, "list", "--json"))[0]
	placed := task.Placements()["transcode"]
	wantPlaced := store.Placement{Requires: []string{"gpu"}, Prefers: []string{"h264_nvenc"}, Wait: 5 * time.Minute}
	if !reflect.DeepEqual(placed, wantPlaced) {
		t.Errorf("the placement is %+v, want %+v", placed, wantPlaced)
	}
	const want = "transcode requires gpu, prefers h264_nvenc for 5m0s"
	if shown := p.run(0, "show", task.ID.String()).stdout.String(); !strings.Contains(shown, want) {
		t.Errorf("show does not say %q:\n%s", want, shown)
	}
	p.run(2, "submit", "clip.mp4", "--requires", "")
	if refused := p.run(2, "submit", "clip.mp4", "--requires", "a gpu").stderr(); !strings.Contains(refused, "--requires a gpu: a label has") {
		t.Errorf("a label with a space is answered with %s", refused)
	}
}
