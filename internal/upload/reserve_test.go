package upload_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/internal/waittest"
)

// kind returns the kind of a problem.
func (a response) kind() string {
	_, kind, _ := strings.Cut(a.body, `"type":"urn:cuelight:problem:`)
	kind, _, _ = strings.Cut(kind, `"`)
	return kind
}

func TestReservation_ExpiresWithoutData(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{
		MaxBytes: 10, MaxReserved: 20, ReservationTimeout: time.Hour,
	})
	begin := func(want int, length, principal string) response {
		t.Helper()
		return s.mustSend(want, "POST", "/uploads/", nil, "Upload-Length", length, "As", principal)
	}
	hers := begin(http.StatusCreated, "10", "ann").header.Get("Location")
	a := begin(http.StatusTooManyRequests, "1", "ann") // the other half is for other principals
	if a.kind() != "too-many-uploads" || a.header.Get("Retry-After") == "" {
		t.Errorf("at her limit she got %v %s", a.header, a.body)
	}
	his := begin(http.StatusCreated, "10", "bob").header.Get("Location")
	if a := begin(http.StatusServiceUnavailable, "5", "carl"); a.kind() != "uploads-full" {
		t.Errorf("at the total limit: %s", a.body)
	}

	s.makeOlder(hers, 2*time.Hour)
	begin(http.StatusCreated, "10", "carl")
	a = s.mustPatch(http.StatusServiceUnavailable, hers, 0, strings.NewReader("a"), "As", "ann")
	if a.kind() != "uploads-full" || a.header.Get("Retry-After") == "" {
		t.Errorf("after the expiration she got %v %s", a.header, a.body)
	}
	s.mustPatch(http.StatusNoContent, his, 0, strings.NewReader("0123456789"), "As", "bob")
	s.mustPatch(http.StatusNoContent, hers, 0, strings.NewReader("a"), "As", "ann")
	begin(http.StatusServiceUnavailable, "5", "bob") // the reservation is renewed
	s.mustPatch(http.StatusNoContent, hers, 1, strings.NewReader("123456789"), "As", "ann")
}

func TestReservation_CountsTheLengthOfAForm(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{MaxBytes: 1000, MaxReserved: 1500})
	body, feed := io.Pipe()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = s.send("POST", "/uploads/", body, "Tus-Resumable", "", "Content-Length", "900",
			"Content-Type", "multipart/form-data; boundary=x", "As", "ann")
	}()
	fmt.Fprintf(feed, "--x\r\nContent-Disposition: form-data; name=file; filename=a.mp4\r\n\r\nabc")
	waittest.Until(t, "the upload has begun", func() bool { return len(s.entries()) > 0 })
	s.mustSend(http.StatusServiceUnavailable, "POST", "/uploads/", nil, "Upload-Length", "800", "As", "bob")
	s.create(500, "As", "bob")
	feed.CloseWithError(errors.New("the client is gone"))
	<-sent
}

// The disk is smaller than MaxBytes.
func TestReservation_CountsAnUnknownLengthAsMaxBytes(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{MaxBytes: 1 << 60, MaxReserved: 1 << 60, MinFree: 1})
	body, feed := io.Pipe()
	got := make(chan response, 1)
	go func() {
		a, _ := s.send("PUT", "/uploads/a.mp4", body, "Tus-Resumable", "", "As", "ann")
		got <- a
	}()
	_, _ = io.WriteString(feed, "abc")
	waittest.Until(t, "the upload has begun", func() bool { return len(s.entries()) > 0 })
	s.mustSend(http.StatusTooManyRequests, "POST", "/uploads/", nil, "Upload-Length", "700", "As", "ann")
	feed.Close()
	if a := <-got; a.status != http.StatusCreated {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.create(700, "As", "ann")
}

func TestReservation_OfOnePrincipalLeavesHalfOfTheDiskToOthers(t *testing.T) {
	t.Parallel()
	const unlimited = 1 << 62
	s := serve(t, upload.Options{MaxBytes: unlimited, MaxReserved: unlimited, MinFree: -1})
	free, _, err := diskspace.Free(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	begin := func(want int, percent int64, principal string) {
		t.Helper()
		s.mustSend(want, "POST", "/uploads/", nil, "Upload-Length", fmt.Sprint(free/100*percent), "As", principal)
	}
	begin(http.StatusCreated, 90, "ann")
	begin(http.StatusInsufficientStorage, 30, "ann")
	begin(http.StatusCreated, 30, "bob")
	begin(http.StatusInsufficientStorage, 30, "carl")
	begin(http.StatusCreated, 10, "carl")
}

func TestReservation_OfOnePrincipalLeavesHalfOfTheLimitToOthers(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{MaxBytes: 100, MaxReserved: 100, MinFree: -1})
	s.create(100, "As", "ann")
	s.mustSend(http.StatusServiceUnavailable, "POST", "/uploads/", nil, "Upload-Length", "51", "As", "bob")
	s.create(50, "As", "bob")
}

func TestReservation_IsRenewedInProportionToWhatArrived(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{MaxBytes: 1000, MaxReserved: 2000, ReservationTimeout: time.Hour})
	url := s.create(1000, "As", "ann")
	s.makeOlder(url, 2*time.Hour)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("0123456789"), "As", "ann")
	s.mustSend(http.StatusTooManyRequests, "POST", "/uploads/", nil, "Upload-Length", "921", "As", "ann")
	s.create(920, "As", "ann")
}

func TestReservation_IsReleasedWhenTheKeyIsRevoked(t *testing.T) {
	t.Parallel()
	var revoked atomic.Bool
	s := serve(t, upload.Options{MaxBytes: 10, MaxReserved: 20, IsRevoked: func(_ context.Context, principal string) bool {
		return revoked.Load() && principal == "ann"
	}})
	s.create(10, "As", "ann")
	s.create(10, "As", "bob")
	s.mustSend(http.StatusServiceUnavailable, "POST", "/uploads/", nil, "Upload-Length", "10", "As", "carl")
	revoked.Store(true)
	s.create(10, "As", "carl")
}

func TestReservation_IgnoresUnknownLengthsForDiskSpace(t *testing.T) {
	t.Parallel()
	const more = 1 << 55 // more than any disk has
	s := serve(t, upload.Options{MaxBytes: more, MaxReserved: 4 * more, MinFree: 1})
	body, feed := io.Pipe()
	got := make(chan response, 1)
	go func() {
		a, _ := s.send("PUT", "/uploads/a.mp4", body, "Tus-Resumable", "", "As", "ann")
		got <- a
	}()
	_, _ = io.WriteString(feed, "abc")
	waittest.Until(t, "the upload has begun", func() bool { return len(s.entries()) > 0 })
	s.create(700, "As", "bob")
	s.mustSend(http.StatusInsufficientStorage, "POST", "/uploads/", nil, "Upload-Length", fmt.Sprint(more), "As", "bob")
	feed.Close()
	if a := <-got; a.status != http.StatusCreated {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestUpload_HasItsUserAndPrincipal(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(3, "As", "ann", "Upload-Metadata", metadata("filename", "a.mp4", "user_id", "user 7"))
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"), "As", "ann")
	if u := s.submissions.only(t); u.UserID != "user 7" || u.Principal != "ann" {
		t.Errorf("%+v", u)
	}
	a := s.mustSend(http.StatusBadRequest, "POST", "/uploads/", nil, "Upload-Length", "3",
		"Upload-Metadata", metadata("user_id", strings.Repeat("x", 2049)))
	if a.kind() != "invalid-request" {
		t.Errorf("too long: %s", a.body)
	}
}

func TestProblems_HaveKinds(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	s := serve(t, upload.Options{
		OnComplete: func(context.Context, upload.Upload) (upload.Receipt, error) {
			close(entered)
			<-leave
			return upload.Receipt{Task: "task"}, nil
		},
	})
	url := s.create(3)
	if a := s.mustPatch(http.StatusConflict, url, 2, strings.NewReader("c")); a.kind() != "upload-offset" {
		t.Errorf("wrong offset: %s", a.body)
	}
	patched := make(chan response, 1)
	go func() {
		a, _ := s.send("PATCH", url, strings.NewReader("abc"), "Content-Type", chunkType, "Upload-Offset", "0")
		patched <- a
	}()
	<-entered // other requests need not wait for the submission
	for method, header := range map[string]string{"DELETE": "", "PATCH": "3"} {
		a := s.mustSend(http.StatusLocked, method, url, nil, "Upload-Offset", header, "Content-Type", chunkType)
		if a.kind() != "upload-busy" || a.header.Get("Retry-After") != "10" {
			t.Errorf("%s during the completion: %v %s", method, a.header, a.body)
		}
	}
	close(leave)
	if a := <-patched; a.status != http.StatusNoContent {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := s.mustSend(http.StatusConflict, "DELETE", url, nil); a.kind() != "upload-complete" {
		t.Errorf("complete: %s", a.body)
	}
	if a := s.mustSend(http.StatusNotFound, "HEAD", "/uploads/x", nil); a.body != "" {
		t.Errorf("HEAD: %s", a.body)
	}
}

func TestHasOpen_CountsUploadsWhoseClientsMayContinue(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{ReservationTimeout: time.Hour})
	wantOpen := func(want bool, when string) {
		t.Helper()
		if isOpen, err := s.uploads.HasOpen(t.Context()); err != nil || isOpen != want {
			t.Errorf("%s: %t, %v", when, isOpen, err)
		}
	}
	wantOpen(false, "without any")
	url := s.create(4)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("ab"))
	wantOpen(true, "after half of the bytes")
	s.makeOlder(url, 2*time.Hour)
	wantOpen(false, "long after the last byte")

	body, sender := io.Pipe()
	var running sync.WaitGroup
	running.Go(func() { s.mustPatch(http.StatusNoContent, url, 2, body) })
	waittest.Until(t, "the request has the upload", func() bool {
		isOpen, err := s.uploads.HasOpen(t.Context())
		return isOpen && err == nil
	})
	if _, err := sender.Write([]byte("cd")); err != nil {
		t.Error(err)
	}
	sender.Close()
	running.Wait()
	waittest.Until(t, "the request has ended", func() bool {
		isOpen, err := s.uploads.HasOpen(t.Context())
		return !isOpen && err == nil
	})
}
