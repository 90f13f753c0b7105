"""Operations over HTTP: part of the control API."""
