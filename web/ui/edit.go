package ui

import (
	"context"
	"net/http"
	"strings"

	"github.com/cuelight/cuelight/stages/video"
)

// confirmEdit asks for a title, a description and who can watch.
func confirmEdit(u *UI, r *http.Request) (confirmation, error) {
	c, t, err := u.confirmVideo(r, "edit", confirmation{
		Title: "Edit", Button: "Save",
		Text: "What viewers see of %s changes at once; nothing is published again. Links for viewers keep working. After a video became " +
			"signed again, proxies may have parts of it for a minute.",
	})
	p, paramsErr := video.ParseParams(t.Params)
	if err == nil {
		err = paramsErr
	}
	c.Edit = &editForm{Title: p.Title, Description: p.Description, IsPublic: p.Visibility == video.VisibilityPublic}
	c.Command = shellCommand("edit", t.ID.String(), "--title", "TITLE", "--visibility", "public")
	return c, err
}

// editForm has the values of the form.
type editForm struct {
	Title, Description string
	IsPublic           bool
}

func doEdit(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	title := strings.TrimSpace(r.PostForm.Get("title"))
	description := strings.TrimSpace(strings.ReplaceAll(r.PostForm.Get("description"), "\r", ""))
	visibility := r.PostForm.Get("visibility")
	return "The video is changed.", u.o.Actions.Edit(ctx, id, video.Edit{Title: &title, Description: &description, Visibility: &visibility})
}
