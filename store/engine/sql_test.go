package engine

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/store"
)

func TestStatements_MatchVideoSQL(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("video.sql")
	if err != nil {
		t.Fatal(err)
	}
	if string(file) != Statements(store.Video()) {
		t.Error("video.sql differs from the statements: run make sql")
	}
}

func TestStatements_AreComplete(t *testing.T) {
	t.Parallel()
	all := Statements(store.Video())
	statements := reflect.ValueOf(New(nil, store.Video()).sql)
	for i := range statements.NumField() {
		field, text := statements.Field(i), ""
		if field.Kind() == reflect.Slice && field.Len() == 0 {
			continue // no stage divides
		}
		if field.Kind() == reflect.Slice {
			field = field.Index(0)
		}
		if text = field.String(); !strings.Contains(all, text) {
			t.Errorf("statement %s is not in video.sql", statements.Type().Field(i).Name)
		}
	}
}
