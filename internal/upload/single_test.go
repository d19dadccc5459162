package upload_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/internal/waittest"
)

// mustSendPlain sends a request without the headers of tus.
func (s *testServer) mustSendPlain(want int, method, path string, body io.Reader, headers ...string) response {
	s.t.Helper()
	return s.mustSend(want, method, path, body, append([]string{"Tus-Resumable", ""}, headers...)...)
}

func TestSingleRequest_AcceptsAFile(t *testing.T) {
	t.Parallel()
	query := "?" + url.Values{"params": {`{"a":1}`}, "priority": {"5"}, "request_id": {"r"}}.Encode()
	for _, c := range []struct{ name, method, path, contentType, wantType string }{
		{"curl -T", "PUT", "/uploads/a%20film.mp4" + query, "", ""},
		{"curl -X POST -T", "POST", "/uploads/a%20film.mp4" + query, "", ""},
		{
			"curl --data-binary", "POST", "/uploads/" + query + "&filename=a%20film.mp4", "application/x-www-form-urlencoded",
			"",
		},
		{"with a type", "POST", "/uploads" + query + "&filename=a%20film.mp4", "video/mp4", "video/mp4"},
	} {
		for _, chunked := range []bool{false, true} {
			s := serve(t, upload.Options{})
			want := randomBytes(100_000)
			var body io.Reader = bytes.NewReader(want)
			if chunked {
				body = io.MultiReader(body)
			}
			a := s.mustSendPlain(http.StatusCreated, c.method, c.path, body, "Content-Type", c.contentType)
			u := s.submissions.only(t)
			s.checkFile(u, want)
			if u.Name != "a film.mp4" || string(u.Params) != `{"a":1}` || u.Priority != 5 || u.RequestID != "r" ||
				u.Type != c.wantType {
				t.Errorf("%s: submitted as %+v", c.name, u)
			}
			var v struct {
				ID     string `json:"id"`
				TaskID string `json:"task_id"`
				Size   int64  `json:"size"`
			}
			err := json.Unmarshal([]byte(a.body), &v)
			if err != nil || v.ID != u.ID || v.TaskID != "task-of-"+u.ID || v.Size != 100_000 {
				t.Errorf("%s: the body is %s", c.name, a.body)
			}
			if a.header.Get("Location") != "/uploads/"+u.ID || a.header.Get("Cuelight-Task") != v.TaskID {
				t.Errorf("%s: the headers are %v", c.name, a.header)
			}
		}
	}
}

// newForm returns a form. A field whose name begins with @ is a file.
func newForm(fields ...string) (io.Reader, string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(fields); i += 2 {
		if name, file := strings.CutPrefix(fields[i], "@"); file {
			part, _ := w.CreateFormFile("file", name)
			io.WriteString(part, fields[i+1])
		} else {
			w.WriteField(fields[i], fields[i+1])
		}
	}
	w.Close()
	return &b, w.FormDataContentType()
}

func TestSingleRequest_AcceptsAForm(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	want := string(randomBytes(100_000))
	body, contentType := newForm("priority", "5", "params", `{"a":1}`, "@../a film.mp4", want)
	s.mustSendPlain(http.StatusCreated, "POST", "/uploads/", body, "Content-Type", contentType)
	u := s.submissions.only(t)
	s.checkFile(u, []byte(want))
	if u.Name != "a film.mp4" || u.Priority != 5 || string(u.Params) != `{"a":1}` || u.Type != "application/octet-stream" {
		t.Errorf("submitted as %+v", u)
	}
}

// The fields before the file are kept in memory and saved.
func TestSingleRequest_LimitsFormFields(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	long := strings.Repeat("n", 200<<10)
	for name, fields := range map[string][]string{
		"a field's name": {long, "v", "@a.mp4", "b"},
		"a file's name":  {"@" + long + ".mp4", "b"},
		"many fields": append(strings.Split(strings.Repeat("k,"+strings.Repeat("v", 30<<10)+",", 10), ",")[:20],
			"@a.mp4", "b"),
	} {
		body, contentType := newForm(fields...)
		a, err := s.send("POST", "/uploads/", body, "Content-Type", contentType, "Tus-Resumable", "")
		if err != nil || a.status != http.StatusBadRequest {
			t.Errorf("%s: got %d %.200s %v", name, a.status, a.body, err)
		}
	}
	body := strings.NewReader(long +
		"\r\n--y\r\nContent-Disposition: form-data; name=f; filename=a.mp4\r\n\r\nb\r\n--y--\r\n")
	s.mustSendPlain(http.StatusBadRequest, "POST", "/uploads/", body, "Content-Type", "multipart/form-data; boundary=y")
	if all := s.submissions.all(); len(all) > 0 || len(s.entries()) > 0 {
		t.Errorf("%d were submitted, remaining: %v", len(all), s.entries())
	}
}

func TestSingleRequest_LeavesNothingAfterAnError(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{MaxBytes: 1000})
	long := strings.Repeat("x", 1001)
	s.mustSendPlain(http.StatusRequestEntityTooLarge, "PUT", "/uploads/a.mp4", strings.NewReader(long))
	s.mustSendPlain(http.StatusRequestEntityTooLarge, "PUT", "/uploads/a.mp4", io.MultiReader(strings.NewReader(long)))
	s.mustSendPlain(http.StatusBadRequest, "PUT", "/uploads/a.mp4", nil)
	s.mustSendPlain(http.StatusBadRequest, "PUT", "/uploads/a.mp4", io.MultiReader(strings.NewReader("")))
	s.mustSendPlain(http.StatusBadRequest, "PUT", "/uploads/a.mp4?priority=x", strings.NewReader("abc"))
	s.mustSendPlain(http.StatusBadRequest, "PUT", "/uploads/a.mp4?priority=1&priority=2", strings.NewReader("abc"))
	for status, forms := range map[int][][]string{
		http.StatusRequestEntityTooLarge: {{"@a", long}},
		http.StatusBadRequest: {
			{}, {"a", "b"}, {"@a", ""}, {"@a", "b", "priority", "1"}, {"@a", "b", "@c", "d"}, {"params", "[]", "@a", "b"},
			{"x", strings.Repeat("x", 40<<10), "@a", "b"},
			append(strings.Split(strings.Repeat("k,v,", 40), ","), "v", "@a", "b"),
		},
	} {
		for _, fields := range forms {
			if len(fields)%2 == 1 {
				fields = fields[1:]
			}
			body, contentType := newForm(fields...)
			a, err := s.send("POST", "/uploads/", body, "Content-Type", contentType, "Tus-Resumable", "")
			if err != nil || a.status != status {
				t.Errorf("%.60q: got %d %s %v, want %d", fields, a.status, a.body, err, status)
			}
		}
	}
	s.mustSendPlain(http.StatusBadRequest, "POST", "/uploads/", strings.NewReader("x"),
		"Content-Type", "multipart/form-data; boundary=y")
	s.mustSendPlain(http.StatusBadRequest, "POST", "/uploads/", strings.NewReader("x"),
		"Content-Type", "multipart/form-data")
	_, _ = s.send("PUT", "/uploads/a.mp4", brokenReader(randomBytes(900), 500), "Content-Length", "900",
		"Tus-Resumable", "")
	broken, contentType := newForm("@a", long[:900])
	half, _ := io.ReadAll(io.LimitReader(broken, 500))
	s.mustSendPlain(http.StatusBadRequest, "POST", "/uploads/", bytes.NewReader(half), "Content-Type", contentType)
	waittest.Until(t, "the directory is empty", func() bool { return len(s.entries()) == 0 })
	if all := s.submissions.all(); len(all) > 0 {
		t.Errorf("%+v was submitted", all)
	}
}

func TestSingleRequest_IsAcceptedIfTheSubmissionFails(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	s.submissions.failWith(errors.New("the database is down"))
	s.mustSendPlain(http.StatusAccepted, "PUT", "/uploads/a.mp4", strings.NewReader("abc"))
	s.submissions.failWith(nil)
	if _, err := s.uploads.CleanUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.checkFile(s.submissions.only(t), []byte("abc"))
}

// A file is received only if it can be submitted, as far as that is known before.
func TestPrepare_ChangesOrRefusesAnUploadBeforeItsFileArrives(t *testing.T) {
	t.Parallel()
	answer := error(nil)
	s := serve(t, upload.Options{Prepare: func(_ context.Context, u *upload.Upload) error {
		if answer == nil {
			u.Params, u.Placement = json.RawMessage(`{"b":`+string(u.Params)+`}`), json.RawMessage(`{"transcode":{}}`)
		}
		return answer
	}})
	body := func() io.Reader { return strings.NewReader("abc") }
	got := s.mustSend(201, "POST", "/uploads/", nil, "Upload-Length", "3",
		"Upload-Metadata", metadata("params", `{"a":1}`, "filename", "f.mp4"))
	answer = errors.New("the database is not there") // what was prepared is not prepared again
	s.mustSend(204, "PATCH", got.header.Get("Location"), body(), "Upload-Offset", "0",
		"Content-Type", "application/offset+octet-stream")
	if u := s.submissions.only(t); string(u.Params) != `{"b":{"a":1}}` || string(u.Placement) != `{"transcode":{}}` || u.Name != "f.mp4" {
		t.Errorf("submitted as %+v", u)
	}
	s.mustSendPlain(201, "PUT", "/uploads/g.mp4", body())
	if all := s.submissions.all(); len(all) != 2 || all[1].Params != nil {
		t.Errorf("after an error that may go away: %+v", all)
	}
	answer = fmt.Errorf("%w: no such profile", upload.ErrRefused)
	for _, a := range []response{
		s.mustSend(422, "POST", "/uploads/", nil, "Upload-Length", "3"), s.mustSendPlain(422, "PUT", "/uploads/h.mp4", body()),
	} {
		if !strings.Contains(a.body, "no such profile") {
			t.Errorf("refused with %s", a.body)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(s.dir, "uploads")); err != nil || len(entries) != 2 {
		t.Errorf("%d uploads are left, %v", len(entries), err)
	}
}
