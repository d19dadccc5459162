package stages_test

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
)

func TestProcessesShareThePipelineByStages(t *testing.T) {
	t.Parallel()
	pipeline := func(first, second int) *stages.Pipeline {
		p, err := stages.New("test",
			stages.Stage{Name: "one", Workers: first, Work: noop},
			stages.Stage{Name: "two", Workers: second, Needs: []string{"one"}, Work: noop})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	b := setup(t, stages.Stage{Name: "one", Work: noop}, stages.Stage{Name: "two", Needs: []string{"one"}, Work: noop})
	part := func(first, second int, channels ...string) *runner {
		mine := b
		mine.pipeline = pipeline(first, second)
		for i, c := range mine.pipeline.Channels()[1:] {
			if i >= len(channels) || c != b.Graph().Channel(channels[i]) {
				t.Errorf("with %d and %d slots it listens on %q", first, second, c)
			}
		}
		return mine.start(func(r *stages.Runner) { r.Wakes = mine.listening() })
	}
	ones, twos := part(1, -1, "one"), part(-1, 1, "two")
	for range 20 {
		b.submit()
	}
	began := time.Now()
	for name, r := range map[string]*runner{"one": ones, "two": twos} {
		for range 20 {
			if e := r.wait(t, stages.Completed); e.Stage != name {
				t.Errorf("the one for %s completed %s", name, e.Stage)
			}
		}
	}
	// The sweep comes once an hour.
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}
