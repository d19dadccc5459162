package stages

import (
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
)

// Pipeline is a checked set of stages, made by [New].
type Pipeline struct {
	graph  store.Graph
	stages []Stage
}

// New checks the stages of a pipeline and sets their defaults. Its errors wrap
// [store.ErrGraph]: an unknown need, a circle, an invalid or repeated name, a stage without
// Work, or with Divide and without Part, a negative number.
func New(name string, stages ...Stage) (*Pipeline, error) {
	p := &Pipeline{stages: make([]Stage, len(stages))}
	nodes := make([]store.Node, len(stages))
	for i, s := range stages {
		switch {
		case s.Work == nil && (s.Part == nil || s.Divide != nil):
			return nil, fmt.Errorf("pipeline %q: %w: stage %q has no Work", name, store.ErrGraph, s.Name)
		case s.Part == nil && s.Divide != nil:
			return nil, fmt.Errorf("pipeline %q: %w: stage %q has Divide and no Part", name, store.ErrGraph, s.Name)
		case s.Slots < -1 || s.MaxAttempts < 0 || s.Timeout < 0 || s.Stall < 0 || s.Backoff.Base < 0 || s.Backoff.Max < 0:
			return nil, fmt.Errorf("pipeline %q: %w: stage %q has a negative setting", name, store.ErrGraph, s.Name)
		}
		p.stages[i] = s.withDefaults()
		nodes[i] = store.Node{Name: s.Name, Needs: s.Needs, Divides: s.Part != nil}
	}
	graph, err := store.NewGraph(name, nodes...)
	if err != nil {
		return nil, err
	}
	p.graph = graph
	return p, nil
}

// WithTablePrefix returns the same pipeline on tables of another prefix, or none. See
// [store.Graph.WithTablePrefix].
func (p *Pipeline) WithTablePrefix(prefix string) (*Pipeline, error) {
	graph, err := p.graph.WithTablePrefix(prefix)
	return &Pipeline{graph: graph, stages: p.stages}, err
}

// Graph returns the pipeline's graph, for [store.New].
func (p *Pipeline) Graph() store.Graph { return p.graph }

// RetryDelay returns how long a stage, by its number, waits after its attempt failed, 1 for the
// first, and whether it has another attempt at all.
func (p *Pipeline) RetryDelay(stage, attempt int) (delay time.Duration, again bool) {
	return p.stages[stage].retryDelay(attempt)
}

// MaxAttempts returns after how many attempts a stage, by its number, is dead.
func (p *Pipeline) MaxAttempts(stage int) int { return p.stages[stage].MaxAttempts }

// Stall returns how long an attempt of a stage, by its number, may make no progress; 0 for no limit.
func (p *Pipeline) Stall(stage int) time.Duration { return p.stages[stage].Stall }

// Requires lists what a worker must offer to do a stage, by its number. The caller must not change it.
func (p *Pipeline) Requires(stage int) []string { return p.stages[stage].Requires }

// doneBy returns the pipeline with slots for those stages whose requirements a worker meets.
func (p *Pipeline) doneBy(w store.Worker) *Pipeline {
	own := &Pipeline{graph: p.graph, stages: slices.Clone(p.stages)}
	for i := range own.stages {
		if s := &own.stages[i]; len(w.Lacks(s.Requires)) > 0 {
			s.Slots = 0
		}
	}
	return own
}

// Channels lists the NOTIFY channels of a [Runner] of this pipeline: not those of stages
// that it leaves to other processes.
func (p *Pipeline) Channels() []string {
	channels := []string{p.graph.ControlChannel()}
	for _, s := range p.stages {
		if s.Slots > 0 || s.joinSlots() > 0 {
			channels = append(channels, p.graph.Channel(s.Name))
		}
	}
	return channels
}
