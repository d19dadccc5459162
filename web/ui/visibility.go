package ui

import (
	"context"
	"net/http"

	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// otherVisibility returns the visibility that a video does not have.
func otherVisibility(t store.Task) string {
	if video.IsPublic(t.Params) {
		return video.VisibilitySigned
	}
	return video.VisibilityPublic
}

func confirmVisibility(u *UI, r *http.Request) (confirmation, error) {
	c, t, err := u.confirmVideo(r, "visibility", confirmation{Text: "%s"})
	to := otherVisibility(t)
	if c.IsDanger = to == video.VisibilityPublic; c.IsDanger {
		c.Text = "Everybody who knows the address of " + c.Text + " can watch it, without a time limit. Links for viewers keep working."
	} else {
		c.Text += " can be watched only with a link for viewers, which expires. The public address ends at once; proxies may have " +
			"parts of the video for a minute."
	}
	c.Title, c.Button, c.Fields = "Make "+to, "Make this video "+to, []field{{"visibility", to}}
	c.Command = shellCommand("visibility", t.ID.String(), to)
	return c, err
}

func doSetVisibility(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	to := r.PostForm.Get("visibility")
	return "The video is " + to + ".", u.o.Actions.SetVisibility(ctx, id, to)
}
