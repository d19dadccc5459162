package ops

import (
	"context"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// SetVisibility changes who can watch a video, at once: see [video.Settings]. Of an unknown visibility the error is a
// [*video.ParamsError].
func (a Actions) SetVisibility(ctx context.Context, task store.ID, visibility string) error {
	return a.perform(ctx, access.Admin, "visibility_set", func(in *store.Store, _ string) (string, details, error) {
		params, err := in.Params(ctx, task)
		if err == nil {
			params, err = video.SetVisibility(params, visibility)
		}
		if err == nil {
			err = in.SetParams(ctx, task, params)
		}
		return task.String(), details{"visibility": visibility}, err
	})
}
