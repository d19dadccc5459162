package video

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Selection says which renditions a retry of transcode makes again. The others are kept.
type Selection struct {
	// Renditions are the heights of those that are made again, the largest first.
	Renditions []int `json:"renditions"`
	// After is the directory of the transcode whose other renditions are kept. A selection has no effect
	// on a task whose latest transcode is another one.
	After string `json:"after"`
}

// selectedMember is the member of params that is a Selection.
const selectedMember = "selected_renditions"

func parseSelection(p *Params, value json.RawMessage) error {
	err := json.Unmarshal(value, &p.Selected)
	if err != nil || len(p.Selected.Renditions) == 0 || p.Selected.After == "" {
		return wrongValue(selectedMember, value, "an object, which Cuelight sets")
	}
	return nil
}

// SelectRenditions returns the params of a task whose transcode makes only renditions of these heights again, and
// keeps the others. ingest and transcode are the latest results of these stages. A height that the
// source is too small for is a [*ParamsError].
func SelectRenditions(params, ingest, transcode json.RawMessage, heights []int) (json.RawMessage, error) {
	object, err := paramsObject(params)
	if err != nil {
		return nil, err
	}
	possible, err := PossibleRenditions(ingest)
	if err != nil {
		return nil, err
	}
	if len(possible) == 0 {
		return nil, invalidParams("renditions: the source has no picture")
	}
	var tr Transcode
	if err := json.Unmarshal(transcode, &tr); err != nil {
		return nil, fmt.Errorf("read result of transcode: %w", err)
	}
	for _, h := range heights {
		if !slices.Contains(possible, h) {
			return nil, invalidParams("renditions: %s cannot be made of this source; possible: %s",
				renditionName(h), strings.Join(renditionNames(possible), ", "))
		}
	}
	heights = slices.Clone(heights)
	slices.SortFunc(heights, func(a, b int) int { return b - a })
	selection, err := json.Marshal(Selection{slices.Compact(heights), tr.Dir})
	if err != nil {
		return nil, err
	}
	return json.Marshal(mergeMembers(map[string]json.RawMessage{selectedMember: selection}, object))
}

// PossibleRenditions returns the heights of the renditions that can be made of a source, the largest first. ingest
// is the result of that stage.
func PossibleRenditions(ingest json.RawMessage) (heights []int, err error) {
	var in Ingest
	if err := json.Unmarshal(ingest, &in); err != nil {
		return nil, fmt.Errorf("read result of ingest: %w", err)
	}
	if in.Info == nil {
		return nil, nil
	}
	for _, r := range in.Settings.fullLadder(in.Info) {
		if n := r.NominalHeight(); n > 0 && !slices.Contains(heights, n) {
			heights = append(heights, n)
		}
	}
	return heights, nil
}

// DropSelection returns params without a selection of renditions.
func DropSelection(params json.RawMessage) (dropped json.RawMessage, found bool) {
	object, err := paramsObject(params)
	if err != nil || object[selectedMember] == nil {
		return params, false
	}
	delete(object, selectedMember)
	dropped, err = json.Marshal(object)
	return dropped, err == nil
}

func renditionName(height int) string { return fmt.Sprintf("%dp", height) }

func renditionNames(heights []int) (names []string) {
	for _, h := range heights {
		names = append(names, renditionName(h))
	}
	return names
}

// fullLadder returns the rungs of all sizes that are possible.
func (s Settings) fullLadder(info *media.Info) []media.Rung {
	s.Renditions, s.LeftOut = media.LadderHeights(), nil
	return s.ladder(info)
}

// selectedRungs returns the names of the rungs that the transcode of a task makes and the transcode that has the others, if
// it does not make the whole ladder.
func (in Ingest) selectedRungs(ctx context.Context, job *stages.Job) (only []string, before *Transcode, err error) {
	p, err := ParseParams(job.Params)
	if err != nil || p.Selected.After == "" {
		return nil, nil, err
	}
	latest, err := stages.Result[Transcode](ctx, job, transcodeStage)
	if errors.Is(err, store.ErrNotFound) || err == nil && (latest.Dir != p.Selected.After || latest.Output == nil) {
		return nil, nil, nil
	}
	for _, r := range in.Settings.fullLadder(in.Info) {
		if slices.Contains(p.Selected.Renditions, r.NominalHeight()) {
			only = append(only, r.Name)
		}
	}
	return only, &latest, err
}

// rungs returns the rungs that a part makes.
func (s chunkSpec) rungs(in Ingest) []media.Rung {
	if len(s.Only) == 0 {
		return in.ladder()
	}
	return slices.DeleteFunc(in.Settings.fullLadder(in.Info), func(r media.Rung) bool { return !slices.Contains(s.Only, r.Name) })
}

// keptError says why renditions cannot be kept. Then all are made again.
type keptError struct{ err error }

func (e *keptError) Error() string { return "keep renditions: " + e.err.Error() }

func (e *keptError) Unwrap() error { return e.err }

// transcodeBefore is the transcode whose renditions are kept, which one of the parts has; nil if none is.
func transcodeBefore(made []Chunk) *Transcode {
	for _, chunk := range made {
		if chunk.Before != nil {
			return chunk.Before
		}
	}
	return nil
}

// addKept links the renditions of the transcode before that were not made again to those in dir.
func (c Config) addKept(ctx context.Context, taskDir, dir string, tr, before *Transcode) error {
	from, err := findResultDir(taskDir, transcodeStage, before.Dir)
	if err != nil {
		return err
	}
	for _, f := range before.Failed { // the video lacks it until it is made
		isMade := slices.ContainsFunc(tr.Output.Video, func(r media.Rendition) bool { return r.Name == f.Name })
		isListed := slices.ContainsFunc(tr.Failed, func(other FailedRendition) bool { return other.Name == f.Name })
		if !isMade && !isListed {
			tr.Failed = append(tr.Failed, f)
		}
	}
	l := linker{need: before.Output.Bytes, reserve: c.reserve()}
	for _, r := range tr.Output.AddRenditions(before.Output) {
		to := filepath.Join(dir, r.Name)
		if err := os.Mkdir(to, privateMode); err != nil {
			return fmt.Errorf("create directory of rendition: %w", err)
		}
		if err := l.add(ctx, filepath.Join(from, r.Name), to, privateMode); err != nil {
			return fmt.Errorf("link renditions: %w", err)
		}
		tr.Kept = append(tr.Kept, r.Name)
	}
	for _, r := range before.Rungs {
		if !slices.ContainsFunc(tr.Rungs, func(made media.Rung) bool { return made.Name == r.Name }) {
			tr.Rungs = append(tr.Rungs, r)
		}
	}
	tr.LastChunk = cmp.Or(tr.LastChunk, before.LastChunk)
	slices.SortStableFunc(tr.Rungs, func(a, b media.Rung) int { return b.Height - a.Height })
	return nil
}

// linkWhole links the renditions that one part has made, and returns their description.
func (c Config) linkWhole(ctx context.Context, taskDir, dir string, whole *Transcode) (*media.Output, error) {
	from, err := findResultDir(taskDir, transcodeStage, whole.Dir)
	if err != nil {
		return nil, err
	}
	l, out := linker{need: whole.Output.Bytes, reserve: c.reserve()}, *whole.Output
	return &out, l.add(ctx, from, dir, privateMode)
}
