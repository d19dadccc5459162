package ops

import (
	"context"
	"encoding/json"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// Edit changes the title, the description and who can watch a video, at once. Of wrong values the error is a [*video.ParamsError].
func (a Actions) Edit(ctx context.Context, task store.ID, e video.Edit) error {
	return a.perform(ctx, access.Admin, "task_edited", func(in *store.Store, _ string) (string, details, error) {
		params, err := in.Params(ctx, task)
		if err == nil {
			params, err = e.Apply(params)
		}
		if err == nil {
			err = in.SetParams(ctx, task, params)
		}
		var changed details
		if err == nil {
			var text []byte
			if text, err = json.Marshal(e); err == nil {
				err = json.Unmarshal(text, &changed)
			}
		}
		return task.String(), changed, err
	})
}
