// A click on a column's head sorts its table by it, a second click the other way round; empty cells stay last.
for (const table of document.querySelectorAll('table')) {
  const heads = [...table.querySelectorAll('th')];
  heads.forEach((head, column) => head.querySelector('button').addEventListener('click', () => {
    const down = head.getAttribute('aria-sort') === 'ascending';
    heads.forEach(other => other.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const texts = row => row.cells[column].textContent.trim().replace('−', '-');
    const rows = [...table.tBodies[0].rows];
    const numeric = rows.every(row => texts(row) === '' || !isNaN(parseFloat(texts(row))));
    const compare = (a, b) => numeric ? parseFloat(a) - parseFloat(b) : a.localeCompare(b, 'en', { numeric: true });
    rows.sort((a, b) => {
      const x = texts(a), y = texts(b);
      if (x === '' || y === '') return (x === '') - (y === '');
      return down ? compare(y, x) : compare(x, y);
    });
    table.tBodies[0].append(...rows);
  }));
}

// Buttons above a table show the rows that have their value in one column; the first shows all.
for (const choice of document.querySelectorAll('.choice')) {
  const rows = choice.parentElement.querySelector('table').tBodies[0].rows;
  choice.addEventListener('click', event => {
    const chosen = event.target.closest('button');
    if (!chosen) return;
    for (const button of choice.children) button.setAttribute('aria-pressed', button === chosen);
    for (const row of rows) row.hidden = chosen.value !== '' && row.cells[choice.dataset.column].textContent !== chosen.value;
  });
}
