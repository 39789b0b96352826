"use strict";
// ?theme=dark or ?theme=light overrides what the system prefers, for walls.
{
  const theme = new URLSearchParams(location.search).get("theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
}
