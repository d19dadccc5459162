package ops

import (
	"cmp"
	"context"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/store"
)

// AddCaptions attaches captions or chapters to a task, and lets it be published again with them. See [attached.Captions.Add].
func (a Actions) AddCaptions(
	ctx context.Context, task store.ID, fileName string, data []byte, f attached.File,
) (added attached.File, err error) {
	err = a.perform(ctx, access.Admin, "captions_add", func(in *store.Store, actor string) (string, details, error) {
		f.AddedBy = actor
		if added, err = attached.New(in).Add(ctx, task, fileName, data, f); err != nil {
			return "", nil, err
		}
		return task.String(), details{"captions": added.ID, "language": added.Language}, assembleAgain(ctx, in, task)
	})
	return added, err
}

// AddAutomaticCaptions ends a claim and attaches what is spoken, if anything is. It may return [attached.ErrClaimLost].
func AddAutomaticCaptions(ctx context.Context, st *store.Store, claim attached.AutomaticClaim, s media.Speech) error {
	return st.InTx(ctx, func(in *store.Store) error {
		if err := attached.New(in).ScheduleAutomatic(ctx, claim, attached.Never, ""); err != nil || s.WebVTT == nil {
			return err
		}
		a := Actions{Store: in, Authorize: func(context.Context, access.Scope) (string, error) { return attached.Automatic, nil }}
		name := cmp.Or(display.Self.Name(language.Make(s.Language)), s.Language) + " (automatic)"
		_, err := a.AddCaptions(ctx, claim.Task, "speech.vtt", s.WebVTT, attached.File{Language: s.Language, Name: name})
		return err
	})
}

// RemoveCaptions removes attached captions or chapters, and lets the task be published again without them.
func (a Actions) RemoveCaptions(ctx context.Context, task, id store.ID) error {
	return a.perform(ctx, access.Admin, "captions_remove", func(in *store.Store, _ string) (string, details, error) {
		if err := attached.New(in).Remove(ctx, task, id); err != nil {
			return "", nil, err
		}
		return task.String(), details{"captions": id}, assembleAgain(ctx, in, task)
	})
}

// assembleAgain lets a video be published again with the captions that it has now. Nothing is transcoded. A cancelled task stays so.
func assembleAgain(ctx context.Context, in *store.Store, task store.ID) error {
	t, err := in.Get(ctx, task)
	if err != nil || t.Status == store.StatusCancelled {
		return err
	}
	return in.Retry(ctx, task, "assemble")
}
