// Home: everything that needs the viewer, everybody who is here and what each does now, what is stuck, and today's cost.

export function Home() {
  return (
    <section class="page">
      <header class="bar">
        <h1>Home</h1>
      </header>
    </section>
  );
}
