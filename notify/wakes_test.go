package notify_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/cuelight/cuelight/notify"
)

func TestWakes_KeepPayloadsApartUntilThereAreMany(t *testing.T) {
	w := notify.NewWakes()
	w.AddPayload("b", "2")
	w.AddPayload("b", "1")
	w.AddPayload("b", "2")
	w.AddPayload("a", "")
	w.AddPayload("a", "3") // an empty one stands for any
	want := []notify.Wake{{Channel: "a", Payloads: []string{""}}, {Channel: "b", Payloads: []string{"1", "2"}}}
	if got := w.Take(); !reflect.DeepEqual(got, want) {
		t.Errorf("the wakes are %v", got)
	}
	for i := range 1000 {
		w.AddPayload("c", fmt.Sprint(i))
	}
	if got := w.Take(); len(got) != 1 || !reflect.DeepEqual(got[0].Payloads, []string{""}) {
		t.Errorf("of many payloads the wakes are %v", got)
	}
	if got := w.Take(); got != nil {
		t.Errorf("the wakes are %v after they were taken", got)
	}
}
