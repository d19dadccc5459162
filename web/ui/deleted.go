package ui

import (
	"context"
	"net/http"

	"github.com/cuelight/cuelight/store"
)

const deletedRows = 100

// deletedVideo is a row of the page of deleted videos.
type deletedVideo struct {
	store.DeletedTask
	Title, Files string // Files: what has become of its files
	CanRestore   bool
}

// serveDeleted lists deleted videos, the last deleted one first.
func (u *UI) serveDeleted(w http.ResponseWriter, r *http.Request) {
	q := readListQuery(r.URL.Query())
	tasks, err := u.o.Store.ListDeleted(r.Context(), store.DeletedQuery{After: q.after(), Limit: deletedRows})
	if err != nil {
		u.fail(w, r, err)
		return
	}
	next := ""
	if len(tasks) == deletedRows {
		next = u.o.BasePath + "/deleted?after=" + tasks[len(tasks)-1].ID.String()
	}
	u.renderDeleted(w, r, "Deleted videos", tasks, next)
}

// renderDeleted responds with a list of deleted videos.
func (u *UI) renderDeleted(w http.ResponseWriter, r *http.Request, title string, tasks []store.DeletedTask, next string) {
	canOperate := u.o.Viewer(r.Context()).Operate
	rows := make([]deletedVideo, len(tasks))
	for i, t := range tasks {
		title := videoTitle(store.Task{Source: t.Source, Params: t.Params})
		rows[i] = deletedVideo{t, title, filesState(t), canOperate && t.PurgingAt == nil && t.PurgeAt == nil}
	}
	d := u.pageData(w, r)
	d.screen, d.Page, d.Input = screen{title: title}, "deleted", map[string]any{"Heading": title, "Rows": rows, "Next": next}
	u.render(w, http.StatusOK, "deleted", d)
}

// filesState says what has become of a deleted video's files.
func filesState(t store.DeletedTask) string {
	switch {
	case t.PurgingAt != nil || t.PurgeAt != nil:
		return "Being purged"
	case t.KeepPublished:
		return "Published files are kept"
	case t.UnpublishedAt == nil:
		return "Published files are not removed yet"
	}
	return "Published files are removed"
}

func confirmDelete(u *UI, r *http.Request) (confirmation, error) {
	c, t, err := u.confirmVideo(r, "delete", confirmation{
		Title: "Delete", Button: "Delete this video", IsDanger: true, LeavesPage: true,
		Check: field{"keep_published", "Keep the published files until the video is purged"},
		Text: "%s is taken out of all lists, running attempts are stopped, and its published files are removed. " +
			"You can restore it from the page of deleted videos until it is purged. The source file stays.",
	})
	c.Next = u.o.BasePath + "/"
	c.Command = shellCommand("delete", t.ID.String())
	return c, err
}

func doDelete(u *UI, ctx context.Context, r *http.Request) (string, error) {
	t, err := u.taskOf(r)
	if err != nil {
		return "", err
	}
	_, err = u.o.Actions.Delete(ctx, t.ID, store.DeleteOptions{KeepPublished: r.PostForm.Has("keep_published")})
	return "Deleted “" + videoTitle(t) + "”.", err
}

func confirmUndelete(u *UI, r *http.Request) (confirmation, error) {
	id, err := pathID(r)
	if err != nil {
		return confirmation{}, err
	}
	t, err := u.o.Store.GetDeleted(r.Context(), id)
	path := u.o.BasePath + "/videos/" + id.String()
	return confirmation{
		Title: "Restore", Button: "Restore this video", Action: path + "/undelete", Back: u.o.BasePath + "/deleted",
		Text: "“" + videoTitle(store.Task{Source: t.Source, Params: t.Params}) + "” is listed again. Removed files are published again, " +
			"and stages that were interrupted begin again.",
		LeavesPage: true, Next: path, Command: shellCommand("undelete", id.String()),
	}, err
}

func doUndelete(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	return "The video is restored.", u.o.Actions.Undelete(ctx, id)
}
