package main

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
)

// A second signal does not wait for whoever is being served.
func TestRequestsCanBeEndedAtOnce(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})}
	listener, abort := newSeverable(l), make(chan struct{})
	stop := listener.severWhen(abort)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	<-begun
	close(abort)
	if err := server.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := http.ReadResponse(bufio.NewReader(client), nil); err == nil {
		t.Error("there was an answer")
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	stop()
	if n := len(listener.open); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
}
