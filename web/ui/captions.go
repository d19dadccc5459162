package ui

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/store"
)

// captionsForm is the page with the attached captions and chapters of a video, and a form for more.
type captionsForm struct {
	Title, Back, Command string
	Attached             []attached.File
	Accept               string // endings of file names
}

func (u *UI) serveCaptions(w http.ResponseWriter, r *http.Request) {
	if !u.o.Viewer(r.Context()).Operate {
		u.fail(w, r, errReadOnly)
		return
	}
	f, err := u.captionsForm(r)
	if err != nil {
		u.fail(w, r, err)
		return
	}
	d := u.pageData(w, r)
	d.screen, d.Page, d.Input = screen{title: "Captions and chapters"}, "captions", f
	u.render(w, http.StatusOK, "captions", d)
}

func (u *UI) captionsForm(r *http.Request) (captionsForm, error) {
	t, err := u.taskOf(r)
	if err != nil {
		return captionsForm{}, err
	}
	all, err := u.o.Captions(r.Context(), t.ID)
	return captionsForm{
		Title: videoTitle(t), Back: u.o.BasePath + "/videos/" + t.ID.String(), Attached: all,
		Accept:  strings.Join(attached.Extensions, ","),
		Command: shellCommand("captions", "add", t.ID.String(), "FILE", "--language", "LANGUAGE"),
	}, err
}

func doAddCaptions(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	file, header, err := r.FormFile("file")
	if err != nil {
		return "", fmt.Errorf("%w: choose a file", errIncomplete)
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		return "", err
	}
	form := r.PostForm
	added, err := u.o.Actions.AddCaptions(ctx, id, header.Filename, data, attached.File{
		Language: strings.TrimSpace(form.Get("language")), Name: strings.TrimSpace(form.Get("name")),
		Default: form.Has("default"), Forced: form.Has("forced"), SDH: form.Has("sdh"),
		Chapters: form.Has("chapters"),
	})
	return fmt.Sprintf("Attached: %s. The video is published again.", added), err
}

func doRemoveCaptions(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	which, err := store.ParseID(r.PostForm.Get("captions"))
	if err != nil {
		return "", fmt.Errorf("%w: select captions", errIncomplete)
	}
	if err := u.o.Actions.RemoveCaptions(ctx, id, which); err != nil {
		return "", err
	}
	return "Removed. The video is published again.", nil
}
